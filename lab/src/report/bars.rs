//! A chart of bars: one for each name, its median written at its end, its spread across it.

use super::axis::Scale;
use super::distribution::number;
use super::svg::{Canvas, Drawing, Escaped, classes};
use crate::report::summary::Chart;

pub(crate) fn draw(chart: &Chart, canvas: Canvas) -> String {
    let bar = canvas.font * 1.7;
    // On a phone the name is above its bar, so that the bar keeps its width.
    let above = canvas.is_narrow();
    let pitch = if above { bar + canvas.font * 2.0 } else { bar + canvas.font * 0.9 };
    let top = canvas.font * 0.8;
    let bottom = top + pitch * chart.lines.len() as f64;
    let height = bottom + canvas.font * 3.6;
    let mut drawing = Drawing::new(canvas, height, &chart.title);

    let left = if above { 2.0 } else { canvas.name_width(&chart.lines) + 14.0 };
    let right = canvas.width - canvas.font * 6.0;
    let spreads = chart.lines.iter().flat_map(|line| &line.points).filter_map(|point| point.spread);
    let largest = spreads.map(|spread| spread.max).fold(0.0, f64::max);
    let x = Scale::from_zero(largest, left, right, if above { 4 } else { 6 });

    for tick in &x.ticks {
        let place = x.place(*tick);
        drawing.stroke("grid", (place, top), (place, bottom));
        let anchor = if above && *tick == 0.0 { "start" } else { "middle" };
        drawing.text("tick", anchor, (place, bottom + canvas.font * 1.3), &number(*tick));
    }
    drawing.stroke("axis", (left, top), (left, bottom));
    let label = format!("{}, {}", chart.y.label, chart.y.unit);
    let middle = ((left + right) / 2.0, height - canvas.font * 0.5);
    drawing.text("label", "middle", middle, label.trim_end_matches(", "));

    for (row, (line, class)) in chart.lines.iter().zip(classes(&chart.lines)).enumerate() {
        let name_room = if above { canvas.font * 1.5 } else { 0.0 };
        let up = top + pitch * row as f64 + canvas.font * 0.35 + name_room;
        let center = up + bar / 2.0;
        let (name, at, anchor) = if above {
            (&line.name, (left, up - canvas.font * 0.35), "start")
        } else {
            (&line.name, (left - 9.0, center + canvas.font * 0.35), "end")
        };
        drawing.add(format_args!("<g class=\"series {class}\">"));
        drawing.text("name", anchor, at, name);
        match line.points.first().and_then(|point| point.spread) {
            Some(spread) => {
                let (start, end) = (x.place(0.0), x.place(spread.median));
                let right = end.max(start + 1.0);
                let down = up + bar;
                let said = format!("{name}: {}", spread.words(&chart.y.unit));
                let said = Escaped(&said);
                drawing.add(format_args!(
                    "<path class=\"bar\" d=\"M{start:.1} {up:.1}H{right:.1}V{down:.1}H{start:.1}Z\"><title>{said}</title></path>"
                ));
                let (low, high) = (x.place(spread.min), x.place(spread.max));
                drawing.stroke("whisker strong", (low, center), (high, center));
                for end in [low, high] {
                    drawing.stroke("whisker strong", (end, center - 4.0), (end, center + 4.0));
                }
                let at = (high.max(right) + 7.0, center + canvas.font * 0.35);
                drawing.text("value", "start", at, &number(spread.median));
            }
            None => {
                let at = (left + 6.0, center + canvas.font * 0.35);
                drawing.text("tick", "start", at, "no run counted");
            }
        }
        drawing.add(format_args!("</g>"));
    }
    drawing.finish()
}
