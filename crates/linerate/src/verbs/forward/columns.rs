//! Text in columns, each as wide as it has to be.

/// Lines of cells below the names of the columns; those that `numbers` says are put to the right.
pub(super) fn columns<const N: usize>(
    names: [&str; N],
    numbers: [bool; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let lines: Vec<[String; N]> = std::iter::once(names.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let text = |line: &[String; N]| {
        let cells = line.iter().zip(widths).zip(numbers).map(|((cell, width), right)| {
            if right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        let cells: Vec<_> = cells.collect();
        cells.join("  ").trim_end().to_owned()
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
}
