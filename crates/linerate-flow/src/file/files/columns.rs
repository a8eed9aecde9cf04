//! [`Writer`]: records as columns of row groups.

use std::fs::File;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, Type as Physical, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::errors::Result;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{
    EnabledStatistics, WriterProperties, WriterPropertiesPtr, WriterVersion,
};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::ColumnPath;

use crate::schema::{FIELDS, Field, Groups, Kind, VERSION, VERSION_KEY, Value};
use crate::{FlowRecord, schema};

/// The level of zstd. Higher ones save less than a twentieth and take several times as long. The packages' zstd
/// has no level above 3 (`scripts/packages`).
const ZSTD_LEVEL: i32 = 3;

/// How files are written.
pub(super) type Properties = WriterPropertiesPtr;

/// How files are written.
pub(super) fn properties() -> Properties {
    let level = ZstdLevel::try_new(ZSTD_LEVEL).expect("a level of zstd");
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_created_by(concat!("linerate ", env!("CARGO_PKG_VERSION")).into())
        .set_compression(Compression::ZSTD(level))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_sorting_columns(Some(vec![SortingColumn {
            column_idx: 0,
            descending: false,
            nulls_first: false,
        }]))
        .set_key_value_metadata(Some(vec![KeyValue::new(
            VERSION_KEY.to_owned(),
            VERSION.to_string(),
        )]));
    // Times and offsets increase, and nearly every one differs. A dictionary would make them larger.
    let is_increasing = |field: &&Field| match field.kind {
        Kind::DateTimeNanoseconds => true,
        _ => ["packetOffset", "packetEnd"].contains(&field.name),
    };
    for field in FIELDS.iter().filter(is_increasing) {
        let path = ColumnPath::from(field.name);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    Arc::new(properties.build())
}

/// Writes a Parquet file.
pub(super) struct Writer {
    file: SerializedFileWriter<File>,
    groups: Groups,
}

impl Writer {
    /// With these groups of fields.
    pub(super) fn new(file: File, properties: &Properties, groups: Groups) -> Result<Self> {
        let schema = schema::parquet(groups);
        let file = SerializedFileWriter::new(file, schema, Arc::clone(properties))?;
        Ok(Self { file, groups })
    }

    /// Writes records as one row group.
    pub(super) fn write(&mut self, records: &[FlowRecord]) -> Result<()> {
        let mut group = self.file.next_row_group()?;
        for field in FIELDS.iter().filter(|field| self.groups.have(field)) {
            let mut column = group.next_column()?.expect("a column for each field");
            write_column(&mut column, field, records)?;
            column.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// Writes the end of the file.
    pub(super) fn finish(self) -> Result<File> {
        self.file.into_inner()
    }
}

fn write_column(
    column: &mut SerializedColumnWriter<'_>,
    field: &Field,
    records: &[FlowRecord],
) -> Result<()> {
    let number = |value| match value {
        Value::Unsigned(number) => number,
        other => unreachable!("{} is not a number: {other}", field.name),
    };
    match column.untyped() {
        ColumnWriter::Int32ColumnWriter(writer) => {
            let (values, levels) = gather(field, records, |value| number(value) as u32 as i32);
            writer.write_batch(&values, levels.as_deref(), None)?;
        }
        ColumnWriter::Int64ColumnWriter(writer) => {
            let (values, levels) = gather(field, records, |value| number(value) as i64);
            writer.write_batch(&values, levels.as_deref(), None)?;
        }
        ColumnWriter::DoubleColumnWriter(writer) => {
            let (values, levels) = gather(field, records, |value| match value {
                Value::Float(value) => value,
                other => unreachable!("{} is not a float: {other}", field.name),
            });
            writer.write_batch(&values, levels.as_deref(), None)?;
        }
        ColumnWriter::FixedLenByteArrayColumnWriter(writer) => {
            let (values, levels) = gather(field, records, |value| match value {
                Value::Ipv6(address) => {
                    FixedLenByteArray::from(ByteArray::from(address.octets().to_vec()))
                }
                other => unreachable!("{} is not an address: {other}", field.name),
            });
            writer.write_batch(&values, levels.as_deref(), None)?;
        }
        ColumnWriter::ByteArrayColumnWriter(writer) => {
            let (values, levels) = gather(field, records, |value| match value {
                Value::String(text) => ByteArray::from(text),
                Value::Mac(address) => ByteArray::from(address.to_string().into_bytes()),
                other => unreachable!("{} is not text: {other}", field.name),
            });
            writer.write_batch(&values, levels.as_deref(), None)?;
        }
        _ => unreachable!("no field is {}", Physical::BOOLEAN),
    }
    Ok(())
}

/// The values of a column, and its definition levels if a record may be without one.
fn gather<'a, T>(
    field: &Field,
    records: &'a [FlowRecord],
    convert: impl Fn(Value<'a>) -> T,
) -> (Vec<T>, Option<Vec<i16>>) {
    let value = |record| (field.value)(record).map(&convert);
    if !field.nullable {
        return (records.iter().filter_map(value).collect(), None);
    }
    let (mut values, mut levels) = (Vec::new(), Vec::with_capacity(records.len()));
    for value in records.iter().map(value) {
        levels.push(i16::from(value.is_some()));
        values.extend(value);
    }
    (values, Some(levels))
}
