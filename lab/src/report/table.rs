//! The numbers of a chart.

use std::fmt::Write;

use super::distribution::number;
use super::svg::Escaped;
use crate::report::summary::{Chart, Line};

/// A row for each point: name, place, median, spread, how many runs counted.
pub(crate) fn render_rows(chart: &Chart) -> String {
    let mut html = String::from("<div class=\"scroll\"><table><thead><tr><th>name</th>");
    if let Some(x) = &chart.x {
        let _ = write!(html, "<th class=\"n\">{}</th>", Escaped(&join(&x.label, &x.unit)));
    }
    let _ = write!(
        html,
        "<th class=\"n\">median, {}</th><th class=\"n\">middle half</th>\
         <th class=\"n\">min to max</th><th class=\"n\">runs</th><th>remark</th></tr></thead><tbody>",
        Escaped(&chart.y.unit)
    );
    for line in &chart.lines {
        rows(&mut html, chart, line);
    }
    html.push_str("</tbody></table></div>\n");
    html
}

fn rows(html: &mut String, chart: &Chart, line: &Line) {
    for point in &line.points {
        let _ = write!(html, "<tr><td>{}</td>", Escaped(&line.name));
        if chart.x.is_some() {
            let _ = write!(html, "<td class=\"n\">{}</td>", number(point.x));
        }
        match point.spread {
            Some(spread) => {
                let between = |low: f64, high: f64| format!("{} – {}", number(low), number(high));
                let _ = write!(
                    html,
                    "<td class=\"n\"><b>{}</b></td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
                     <td class=\"n\">{}</td>",
                    number(spread.median),
                    between(spread.low, spread.high),
                    between(spread.min, spread.max),
                    spread.count
                );
            }
            None => html.push_str("<td class=\"n\">–</td><td></td><td></td><td class=\"n\">0</td>"),
        }
        let mut remarks: Vec<String> = point.remark.iter().cloned().collect();
        if point.void > 0 {
            remarks.push(format!("{} void", point.void));
        }
        let _ = write!(html, "<td>{}</td></tr>", Escaped(&remarks.join("; ")));
    }
}

fn join(label: &str, unit: &str) -> String {
    if unit.is_empty() { label.to_owned() } else { format!("{label}, {unit}") }
}
