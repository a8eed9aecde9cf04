//! The page: what held, then every run with its claims, charts, numbers and machine.

use std::fmt::Write;

use linerate_service::STYLE;

use super::svg::{Escaped, NARROW, WIDE};
use super::{bars, lines, table};
use crate::report::summary::{Chart, Claim, Summary};

/// The whole page; it needs nothing but itself.
pub(crate) fn page(summaries: &[Summary]) -> String {
    let mut html = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>Linerate lab report</title>\n<style>\n",
    );
    html.push_str(STYLE);
    html.push_str("</style>\n</head>\n<body>\n");
    head(&mut html, summaries);
    for (number, summary) in summaries.iter().enumerate() {
        section(&mut html, number, summary);
    }
    html.push_str(
        "<footer><p>Every run checks that frames sent are frames received plus drops that \
         somebody counted; a run that fails this is void and listed as such. The link is a veth pair inside one machine: the numbers compare programs with each \
         other, they are not the numbers of a network card.</p></footer>\n</body>\n</html>\n",
    );
    html
}

fn head(html: &mut String, summaries: &[Summary]) {
    html.push_str("<header><h1>Linerate lab report</h1>\n");
    if let Some(first) = summaries.first() {
        let environment = &first.environment;
        let _ = writeln!(
            html,
            "<p class=\"sub\">{} · Linux {} · {}, {} cores</p>",
            Escaped(&first.started),
            Escaped(&environment.kernel),
            Escaped(&environment.cpu),
            environment.cores
        );
    }
    let claims: Vec<&Claim> = summaries.iter().flat_map(|summary| &summary.claims).collect();
    if !claims.is_empty() {
        let of = |holds| claims.iter().filter(|claim| claim.holds == holds).count();
        let both = |claim: &&&Claim| claim.holds == Some(true) && claim.straddles;
        let of_both = match claims.iter().filter(both).count() {
            0 => String::new(),
            both => format!(", {both} of them with the spread on both sides"),
        };
        let _ = writeln!(
            html,
            "<p class=\"verdicts\"><span class=\"badge yes\">{} held{}</span>\
             <span class=\"badge no\">{} did not</span>\
             <span class=\"badge open\">{} open</span></p>",
            of(Some(true)),
            of_both,
            of(Some(false)),
            of(None)
        );
    }
    html.push_str("<nav><ul>\n");
    for (number, summary) in summaries.iter().enumerate() {
        let (name, title) = (Escaped(&summary.experiment), Escaped(&summary.title));
        let _ = writeln!(html, "<li><a href=\"#run{number}\">{title}</a> <code>{name}</code></li>");
    }
    html.push_str("</ul></nav></header>\n");
}

fn section(html: &mut String, number: usize, summary: &Summary) {
    let quick = if summary.quick { " · quick run" } else { "" };
    let _ = writeln!(
        html,
        "<section id=\"run{number}\">\n<h2>{}</h2>\n<p class=\"sub\"><code>{}</code> · {} · took \
         {:.0} s{quick}</p>\n<p>{}</p>",
        Escaped(&summary.title),
        Escaped(&summary.experiment),
        Escaped(&summary.started),
        summary.seconds,
        Escaped(&summary.about)
    );
    if !summary.claims.is_empty() {
        claims(html, &summary.claims);
    }
    for chart in &summary.charts {
        figure(html, number, chart);
    }
    list(html, "notes", "What to know", &summary.notes);
    list(html, "void", "Void runs", &summary.void);
    html.push_str("<details><summary>The machine</summary><div class=\"scroll\"><table><tbody>\n");
    for (name, value) in summary.environment.lines() {
        let _ = writeln!(html, "<tr><th>{name}</th><td>{}</td></tr>", Escaped(&value));
    }
    html.push_str("</tbody></table></div></details>\n</section>\n");
}

fn claims(html: &mut String, claims: &[Claim]) {
    html.push_str(
        "<div class=\"scroll\"><table class=\"claims\"><thead><tr><th>claim</th><th>measured</th>\
         <th>bound</th><th>holds</th></tr></thead><tbody>\n",
    );
    for claim in claims {
        let verdict = claim.verdict();
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td><span class=\"badge {verdict}\">{}\
             </span></td></tr>",
            Escaped(&claim.claim),
            Escaped(&claim.figure),
            Escaped(&claim.bound),
            claim.words()
        );
    }
    html.push_str("</tbody></table></div>\n");
}

fn figure(html: &mut String, number: usize, chart: &Chart) {
    let _ = writeln!(
        html,
        "<figure id=\"run{number}-{}\">\n<h3>{}</h3>",
        Escaped(&chart.id),
        Escaped(&chart.title)
    );
    for canvas in [WIDE, NARROW] {
        html.push_str(&match &chart.x {
            Some(x) => lines::draw(chart, x, canvas),
            None => bars::draw(chart, canvas),
        });
    }
    let _ = writeln!(
        html,
        "<figcaption>{}{}</figcaption>",
        Escaped(&chart.caption),
        spread_note(chart)
    );
    html.push_str("<details><summary>The numbers</summary>\n");
    html.push_str(&table::render_rows(chart));
    html.push_str("</details>\n</figure>\n");
}

/// What the thin and the thick bar at a point are, where a point has several repeats.
fn spread_note(chart: &Chart) -> &'static str {
    let mut spreads = chart.lines.iter().flat_map(|line| &line.points).filter_map(|one| one.spread);
    match spreads.any(|spread| spread.count > 1) {
        true => {
            " Thin bars reach from the smallest to the largest repeat, thick bars over the middle half of them."
        }
        false => "",
    }
}

fn list(html: &mut String, class: &str, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = write!(html, "<div class=\"{class}\"><h3>{title}</h3><ul>");
    for line in lines {
        let _ = write!(html, "<li>{}</li>", Escaped(line));
    }
    html.push_str("</ul></div>\n");
}
