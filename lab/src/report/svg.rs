//! Minimal SVG output for charts. The style sheet sets colours.

use std::fmt::{self, Write};

use crate::report::summary::{Line, Role};

/// The size of a drawing in its own units, which are CSS pixels when it is shown at full width.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Canvas {
    /// Names the variant for the style sheet, which shows one of the two.
    pub(crate) class: &'static str,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) font: f64,
}

/// For desks.
pub(crate) const WIDE: Canvas = Canvas { class: "wide", width: 880.0, height: 430.0, font: 13.0 };
/// For phones.
pub(crate) const NARROW: Canvas =
    Canvas { class: "narrow", width: 358.0, height: 360.0, font: 10.5 };

impl Canvas {
    pub(crate) fn is_narrow(&self) -> bool {
        self.width < 600.0
    }

    /// About how wide `text` will be, bold as names are; rather too wide than cut.
    pub(crate) fn text_width(&self, text: &str) -> f64 {
        text.chars().count() as f64 * self.font * 0.61
    }

    pub(crate) fn name_width(&self, lines: &[Line]) -> f64 {
        lines.iter().map(|line| self.text_width(&line.name)).fold(0.0, f64::max)
    }
}

pub(crate) struct Drawing {
    text: String,
}

impl Drawing {
    pub(crate) fn new(canvas: Canvas, height: f64, label: &str) -> Self {
        let Canvas { class, width, font, .. } = canvas;
        let label = Escaped(label);
        let text = format!(
            "<svg class=\"chart {class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"{label}\" font-size=\"{font}\">\n"
        );
        Self { text }
    }

    pub(crate) fn add(&mut self, piece: fmt::Arguments<'_>) {
        let _ = self.text.write_fmt(piece);
        self.text.push('\n');
    }

    pub(crate) fn stroke(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.add(format_args!("<path class=\"{class}\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\"/>"));
    }

    /// Text at a point; `anchor` is `start`, `middle` or `end`.
    pub(crate) fn text(&mut self, class: &str, anchor: &str, at: (f64, f64), text: &str) {
        let ((x, y), text) = (at, Escaped(text));
        self.add(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    pub(crate) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

/// Text escaped for HTML and attributes.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// A class for each line. Lines whose names agree up to a comma are of one family and share a
/// colour; the second and later of a family are dashed and hollow.
pub(crate) fn classes(lines: &[Line]) -> Vec<String> {
    let family = |line: &Line| line.name.split(',').next().unwrap_or_default().trim().to_owned();
    let mut seen: Vec<(Role, String, usize)> = Vec::new();
    lines
        .iter()
        .map(|line| {
            let name = family(line);
            let known =
                seen.iter_mut().find(|(role, known, _)| *role == line.role && *known == name);
            let member = if let Some((_, _, members)) = known {
                *members += 1;
                *members
            } else {
                seen.push((line.role, name.clone(), 0));
                0
            };
            let of_role = seen.iter().filter(|(role, ..)| *role == line.role);
            let number = of_role.take_while(|(_, known, _)| *known != name).count() % 4;
            let role = match line.role {
                Role::Ours => "ours",
                Role::Peer => "peer",
                Role::Limit => "limit",
            };
            format!("{role}{number}{}", if member > 0 { " second" } else { "" })
        })
        .collect()
}
