//! Where flow records are: folders and files of Parquet, here or in an object store; as the table `flows`.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use datafusion::arrow::array::{Array, ArrayRef, FixedSizeBinaryArray, StringBuilder, UInt32Array};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::cast::{as_fixed_size_binary_array, as_uint32_array};
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::prelude::{SessionConfig, SessionContext};
use object_store::ObjectStore;
use object_store::aws::AmazonS3Builder;

/// The table of records.
pub(crate) const TABLE: &str = "flows";
/// The scheme of an object store.
const S3: &str = "s3://";

/// The object store of `s3://BUCKET/PREFIX`, and the prefix. Keys, region and endpoint are those of the environment:
/// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL, AWS_ALLOW_HTTP.
pub(crate) fn object_store(url: &str) -> Result<(Arc<dyn ObjectStore>, String)> {
    let rest = url
        .strip_prefix(S3)
        .with_context(|| format!("{url} is not an object store: s3://BUCKET/PREFIX"))?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        bail!("{url} names no bucket");
    }
    let store = AmazonS3Builder::from_env().with_bucket_name(bucket).build();
    let store = store.with_context(|| format!("cannot use {url}"))?;
    Ok((Arc::new(store), prefix.trim_matches('/').to_owned()))
}

/// A session whose table `flows` has all records in these locations.
pub(crate) async fn open(locations: &[String]) -> Result<SessionContext> {
    let mut config = SessionConfig::new();
    // Names of columns are those of IANA, with capitals.
    config.options_mut().sql_parser.enable_ident_normalization = false;
    config.options_mut().execution.parquet.pushdown_filters = true;
    config.options_mut().execution.parquet.reorder_filters = true;
    let context = SessionContext::new_with_config(config);
    context.register_udf(create_udf(
        "ip",
        vec![DataType::UInt32, DataType::FixedSizeBinary(16)],
        DataType::Utf8,
        Volatility::Immutable,
        Arc::new(|arguments| {
            Ok(ColumnarValue::Array(ip(&ColumnarValue::values_to_arrays(arguments)?)?))
        }),
    ));
    let mut urls = Vec::new();
    for location in locations {
        if let Some(rest) = location.strip_prefix(S3) {
            let (store, _) = object_store(location)?;
            let bucket = rest.split('/').next().unwrap_or_default();
            let base =
                format!("{S3}{bucket}").parse().with_context(|| format!("{location} is no URL"))?;
            context.register_object_store(&base, store);
            let folder = location.ends_with(".parquet") || location.ends_with('/');
            urls.push(ListingTableUrl::parse(if folder {
                location.clone()
            } else {
                format!("{location}/")
            })?);
        } else {
            let path =
                fs::canonicalize(location).with_context(|| format!("cannot read {location}"))?;
            let text = path.to_str().with_context(|| format!("{location} is not UTF-8"))?;
            urls.push(ListingTableUrl::parse(if path.is_dir() {
                format!("{text}/")
            } else {
                text.to_owned()
            })?);
        }
    }
    let state = context.state();
    let options =
        ListingOptions::new(Arc::new(ParquetFormat::default())).with_file_extension(".parquet");
    let mut partitions: Option<(String, Vec<String>)> = None;
    for url in &urls {
        let found = options.infer_partitions(&state, url).await;
        let found = found.with_context(|| format!("cannot list the folders of {url}"))?;
        match &partitions {
            Some((other, before)) if *before != found => {
                bail!(
                    "{url} has the folders {found:?}, {other} has {before:?}: query one of them at a time"
                );
            }
            _ => partitions = Some((url.to_string(), found)),
        }
    }
    let columns = partitions.map(|(_, columns)| columns).unwrap_or_default();
    let options = options
        .with_table_partition_cols(columns.into_iter().map(|name| (name, DataType::Utf8)).collect())
        .with_session_config_options(&context.copied_config());
    let config = ListingTableConfig::new_with_multi_paths(urls).with_listing_options(options);
    let config = config
        .infer_schema(&state)
        .await
        .with_context(|| format!("no flow records can be read in {}", locations.join(", ")))?;
    let is_record = |schema: &SchemaRef| schema.field_with_name("flowStartNanoseconds").is_ok();
    if !config.file_schema.as_ref().is_some_and(is_record) {
        bail!("there are no flow records in {}", locations.join(", "));
    }
    context.register_table(TABLE, Arc::new(ListingTable::try_new(config)?))?;
    Ok(context)
}

/// `ip(v4, v6)`: an address as text, from the column that has it.
fn ip(columns: &[ArrayRef]) -> datafusion::error::Result<ArrayRef> {
    let v4: &UInt32Array = as_uint32_array(&columns[0])?;
    let v6: &FixedSizeBinaryArray = as_fixed_size_binary_array(&columns[1])?;
    let mut text = StringBuilder::new();
    for row in 0..v4.len() {
        if v4.is_valid(row) {
            text.append_value(Ipv4Addr::from(v4.value(row)).to_string());
        } else if v6.is_valid(row) {
            let octets: [u8; 16] = v6.value(row).try_into().unwrap_or_default();
            text.append_value(Ipv6Addr::from(octets).to_string());
        } else {
            text.append_null();
        }
    }
    Ok(Arc::new(text.finish()))
}

/// Files of records in a folder that are whole, in the order of their names.
pub(crate) fn local_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let path = entry.with_context(|| format!("cannot read {}", folder.display()))?.path();
            let hidden =
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else if !hidden && path.extension().is_some_and(|extension| extension == "parquet") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
