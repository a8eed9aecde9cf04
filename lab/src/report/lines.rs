//! A chart of lines: medians joined, each with its spread, each named at its end.

use super::axis::Scale;
use super::distribution::number;
use super::svg::{Canvas, Drawing, Escaped, classes};
use crate::report::distribution::Distribution;
use crate::report::summary::{Axis, Chart, Line};

pub(crate) fn draw(chart: &Chart, x_axis: &Axis, canvas: Canvas) -> String {
    let mut drawing = Drawing::new(canvas, canvas.height, &chart.title);
    let points = || chart.lines.iter().flat_map(|line| &line.points);
    let largest = points().filter_map(|point| Some(point.spread?.max)).fold(0.0, f64::max);
    let top = canvas.font * 2.4;
    let bottom = canvas.height - canvas.font * 3.6;
    let y = Scale::from_zero(largest, bottom, top, 6);
    let widest = y.ticks.iter().map(|tick| canvas.text_width(&number(*tick))).fold(0.0, f64::max);
    let (left, right) = (widest + 12.0, canvas.width - canvas.name_width(&chart.lines) - 21.0);
    let xs: Vec<f64> = points().map(|point| point.x).collect();
    let labels = if canvas.is_narrow() { 6 } else { 12 };
    let x = Scale::over(x_axis, &xs, left + 10.0, right - 10.0, labels);

    for tick in &y.ticks {
        let place = y.place(*tick);
        drawing.stroke("grid", (left, place), (right, place));
        let at = (left - 7.0, place + canvas.font * 0.35);
        drawing.text("tick", "end", at, &number(*tick));
    }
    for tick in &x.ticks {
        let place = x.place(*tick);
        drawing.stroke("mark", (place, bottom), (place, bottom + 4.0));
        let at = (place, bottom + canvas.font * 1.5);
        drawing.text("tick", "middle", at, &number(*tick));
    }
    drawing.stroke("axis", (left, bottom), (right, bottom));
    drawing.text("label", "start", (0.0, canvas.font), &labelled(&chart.y));
    let middle = ((left + right) / 2.0, canvas.height - canvas.font * 0.4);
    drawing.text("label", "middle", middle, &labelled(x_axis));

    let classes = classes(&chart.lines);
    let mut ends = Vec::new();
    for (number, (line, class)) in chart.lines.iter().zip(&classes).enumerate() {
        // Points at the same x step aside a little, so that whiskers do not hide each other.
        let aside = (number as f64 - (chart.lines.len() - 1) as f64 / 2.0) * 1.8;
        let place = |point: f64, value: f64| (x.place(point) + aside, y.place(value));
        ends.extend(draw_line(&mut drawing, chart, x_axis, line, class, &place));
    }
    draw_names(&mut drawing, canvas, chart, &classes, ends, (right, top, bottom));
    drawing.finish()
}

fn labelled(axis: &Axis) -> String {
    if axis.unit.is_empty() { axis.label.clone() } else { format!("{}, {}", axis.label, axis.unit) }
}

/// Draws one line and returns where it ends, if it has a point.
fn draw_line(
    drawing: &mut Drawing,
    chart: &Chart,
    x_axis: &Axis,
    line: &Line,
    class: &str,
    place: &dyn Fn(f64, f64) -> (f64, f64),
) -> Option<(f64, f64)> {
    let points: Vec<(f64, Distribution)> =
        line.points.iter().filter_map(|point| Some((point.x, point.spread?))).collect();
    drawing.add(format_args!("<g class=\"series {class}\">"));
    // A missing point leaves a gap.
    for part in line.points.split(|point| point.spread.is_none()).filter(|part| part.len() > 1) {
        let corners = part.iter().filter_map(|point| Some((point.x, point.spread?.median)));
        let corners = corners.map(|(x, median)| place(x, median));
        let corners: Vec<_> = corners.map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        drawing.add(format_args!("<path class=\"line\" d=\"M{}\"/>", corners.join("L")));
    }
    for (at, spread) in &points {
        drawing.stroke("whisker", place(*at, spread.min), place(*at, spread.max));
        drawing.stroke("middle", place(*at, spread.low), place(*at, spread.high));
        let (x, y) = place(*at, spread.median);
        let name = Escaped(&line.name);
        let words = spread.words(&chart.y.unit);
        let said = format!("{} {}: {words}", number(*at), x_axis.unit);
        let said = Escaped(&said);
        drawing.add(format_args!(
            "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.4\"><title>{name}, {said}</title></circle>"
        ));
    }
    drawing.add(format_args!("</g>"));
    points.last().map(|(x, spread)| place(*x, spread.median))
}

/// Writes each name beside the end of its line, pushed apart where lines end close together.
fn draw_names(
    drawing: &mut Drawing,
    canvas: Canvas,
    chart: &Chart,
    classes: &[String],
    ends: Vec<(f64, f64)>,
    (right, top, bottom): (f64, f64, f64),
) {
    let with_points = chart
        .lines
        .iter()
        .zip(classes)
        .filter(|(line, _)| line.points.iter().any(|p| p.spread.is_some()));
    let mut names: Vec<_> = ends.into_iter().zip(with_points).collect();
    names.sort_by(|((_, a), _), ((_, b), _)| a.total_cmp(b));
    let gap = canvas.font * 1.25;
    let wanted: Vec<f64> = names.iter().map(|((_, y), _)| *y).collect();
    let places = push_apart(&wanted, gap, top, bottom);
    for (((x, y), (line, class)), place) in names.into_iter().zip(places) {
        drawing.add(format_args!("<g class=\"series {class}\">"));
        let bend = right + 4.0;
        drawing.add(format_args!(
            "<path class=\"leader\" d=\"M{:.1} {y:.1}L{bend:.1} {y:.1}L{:.1} {place:.1}\"/>",
            x + 5.0,
            right + 16.0
        ));
        drawing.text("name", "start", (right + 19.0, place + canvas.font * 0.35), &line.name);
        drawing.add(format_args!("</g>"));
    }
}

/// Places as near to the wanted ones (sorted) as a gap allows, within bounds where they fit.
fn push_apart(wanted: &[f64], gap: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut places = wanted.to_vec();
    for at in 1..places.len() {
        places[at] = places[at].max(places[at - 1] + gap);
    }
    let over = places.last().map_or(0.0, |last| (last - bottom).max(0.0));
    if let Some(last) = places.last_mut() {
        *last -= over;
    }
    for at in (0..places.len().saturating_sub(1)).rev() {
        places[at] = places[at].min(places[at + 1] - gap);
    }
    let under = places.first().map_or(0.0, |first| (top * 0.6 - first).max(0.0));
    places.iter().map(|place| place + under).collect()
}

#[cfg(test)]
mod tests {
    use super::push_apart;

    #[test]
    fn names_stay_a_line_apart_and_on_the_canvas() {
        let places = push_apart(&[100.0, 101.0, 102.0, 300.0], 15.0, 20.0, 300.0);
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 15.0), "{places:?}");
        assert_eq!(places[3], 300.0);
        let low = push_apart(&[299.0, 300.0, 300.0], 15.0, 20.0, 300.0);
        assert_eq!(low, [270.0, 285.0, 300.0]);
        assert!(push_apart(&[], 15.0, 20.0, 300.0).is_empty());
    }
}
