//! Flow records in Parquet files, read back.

use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::file::reader::SerializedFileReader;
use parquet::record::{Field, Row};

/// Complete files below a folder.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    let below = paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    below.filter(|path| path.extension().is_some_and(|end| end == "parquet")).collect()
}

/// The records below a folder.
pub(crate) fn records(folder: &Path) -> Vec<Row> {
    let rows = |path: &PathBuf| {
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        reader.into_iter().map(|row| row.unwrap()).collect::<Vec<_>>()
    };
    files(folder).iter().flat_map(rows).collect()
}

/// A field of a record.
pub(crate) fn field<'r>(row: &'r Row, name: &str) -> &'r Field {
    row.get_column_iter().find(|(column, _)| *column == name).unwrap().1
}

/// A number of a record.
pub(crate) fn number(row: &Row, name: &str) -> u64 {
    find_number(row, name).unwrap_or_else(|| panic!("no {name} in {row}"))
}

/// The same; `None` if the record has none.
pub(crate) fn find_number(row: &Row, name: &str) -> Option<u64> {
    Some(match field(row, name) {
        Field::Null => return None,
        Field::UByte(value) => (*value).into(),
        Field::UShort(value) => (*value).into(),
        Field::UInt(value) => (*value).into(),
        Field::ULong(value) => *value,
        other => panic!("{name}: {other:?}"),
    })
}
