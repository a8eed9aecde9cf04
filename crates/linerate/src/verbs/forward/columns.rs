//! Text in columns, each as wide as it has to be.

use crate::cli::stdio;

/// Columns of a continued line before its first cell.
const INDENT: usize = 4;

/// Lines of cells below the names of the columns; those that `numbers` says are put to the right. On a terminal that is
/// too narrow for them, cells that have no room follow in further lines.
pub(super) fn columns<const N: usize>(
    names: [&str; N],
    numbers: [bool; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    columns_within(stdio::width().map_or(usize::MAX, usize::from), names, numbers, rows)
}

fn columns_within<const N: usize>(
    room: usize,
    names: [&str; N],
    numbers: [bool; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let lines: Vec<[String; N]> = std::iter::once(names.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    // What is before each cell.
    let mut end = 0;
    let gaps = widths.map(|width| {
        let gap = match end {
            0 => String::new(),
            end if end + 2 + width > room => format!("\n{}", " ".repeat(INDENT)),
            _ => "  ".to_owned(),
        };
        end = if gap.len() > 2 { INDENT } else { end + gap.len() } + width;
        gap
    });
    let text = |line: &[String; N]| {
        let mut text = String::new();
        for (column, cell) in line.iter().enumerate() {
            let width = widths[column];
            text += &gaps[column];
            text += &match numbers[column] {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            };
        }
        text.lines()
            .map(str::trim_end)
            .filter(|line| !line.is_empty())
            .collect::<Vec<_>>()
            .join("\n")
    };
    lines.iter().map(text).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["ä", "1"], ["long", "12345"]].map(|row| row.map(str::to_owned));
        let text = columns(["name", "count"], [false, true], rows);
        assert_eq!(text, "name  count\nä         1\nlong  12345");
    }

    #[test]
    fn what_has_no_room_follows_in_further_lines() {
        let rows = [["10.0.0.1:80", "123456", "note"], ["b", "7", ""]];
        let rows = || rows.map(|row| row.map(str::to_owned));
        let text = |room| {
            columns_within(room, ["session", "bytes", "changes"], [false, true, false], rows())
        };
        let two =
            "session       bytes\n    changes\n10.0.0.1:80  123456\n    note\nb                 7";
        assert_eq!((text(19).as_str(), text(27).as_str()), (two, two));
        assert_eq!(text(28).lines().count(), 3);
    }
}
