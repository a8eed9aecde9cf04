//! Where flow records are: folders and files of Parquet, here or in an object store; as the table `flows`.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Error, Result, bail};
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::error::DataFusionError;
use datafusion::prelude::{DataFrame, SessionConfig, SessionContext, lit};
use futures::future::ready;
use futures::{StreamExt, TryStreamExt};
use object_store::aws::AmazonS3Builder;
use object_store::{ObjectMeta, ObjectStore, RetryConfig};

use crate::functions;

/// The table of records.
pub(crate) const TABLE: &str = "flows";
/// The scheme of an object store.
const S3: &str = "s3://";
/// How names of files of records end.
const EXTENSION: &str = ".parquet";

/// The object store of `s3://BUCKET/PREFIX`, and the prefix. Keys, region and endpoint are those of the environment:
/// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL, AWS_ALLOW_HTTP.
pub(crate) fn object_store(
    url: &str,
    retry: RetryConfig,
) -> Result<(Arc<dyn ObjectStore>, String)> {
    let rest = url
        .strip_prefix(S3)
        .with_context(|| format!("{url} is not an object store: s3://BUCKET/PREFIX"))?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        bail!("{url} names no bucket");
    }
    let store = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry).build();
    let store = store.with_context(|| format!("cannot use {url}"))?;
    Ok((Arc::new(store), prefix.trim_matches('/').to_owned()))
}

/// Files with the same columns outside of them.
struct FileSet {
    urls: Vec<ListingTableUrl>,
    /// The folders `COLUMN=VALUE` that the locations themselves are in.
    above: Vec<(String, String)>,
    /// The columns of the folders `COLUMN=VALUE` below them.
    below: Vec<String>,
}

/// A session whose table `flows` has all records in these locations.
pub(crate) async fn open(locations: &[String]) -> Result<SessionContext> {
    let mut config = SessionConfig::new();
    // Names of columns are those of IANA, with capitals.
    config.options_mut().sql_parser.enable_ident_normalization = false;
    config.options_mut().execution.parquet.pushdown_filters = true;
    config.options_mut().execution.parquet.reorder_filters = true;
    let context = SessionContext::new_with_config(config);
    functions::register(&context);
    let options = listing_options();
    let state = context.state();
    let (mut groups, mut empty) = (Vec::<FileSet>::new(), Vec::new());
    for location in locations {
        let (name, url) = location_url(&context, location)?;
        let first = files(&context, &url, 1).await;
        if first.with_context(|| format!("cannot list {name}"))?.is_empty() {
            empty.push(name);
            continue;
        }
        let below = options.infer_partitions(&state, &url).await;
        let below = below.with_context(|| format!("cannot list the folders of {name}"))?;
        let above = folders_above(&name);
        match groups.iter_mut().find(|group| group.above == above && group.below == below) {
            Some(group) => group.urls.push(url),
            None => groups.push(FileSet { urls: vec![url], above, below }),
        }
    }
    if groups.is_empty() {
        bail!("{}", no_files(&empty));
    }
    for name in &empty {
        crate::print::eprintln(format_args!("{name} has no complete *.parquet file yet"));
    }
    let mut all: Option<DataFrame> = None;
    for group in groups {
        let frame = records(&context, group).await?;
        all = Some(match all {
            Some(others) => others.union_by_name(frame)?,
            None => frame,
        });
    }
    let all = all.context("no location")?;
    context.register_table(TABLE, all.into_view())?;
    Ok(context)
}

fn listing_options() -> ListingOptions {
    ListingOptions::new(Arc::new(ParquetFormat::default())).with_file_extension(EXTENSION)
}

/// The name of a location for messages, and its URL. No character of a name is a pattern.
fn location_url(context: &SessionContext, location: &str) -> Result<(String, ListingTableUrl)> {
    let (name, base, path, is_folder) = if let Some(rest) = location.strip_prefix(S3) {
        let (store, _) = object_store(location, RetryConfig::default())?;
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        let base = format!("{S3}{bucket}/");
        let url = base.parse().with_context(|| format!("{location} is not a URL"))?;
        context.register_object_store(&url, store);
        (location.to_owned(), base, path.to_owned(), !path.ends_with(EXTENSION))
    } else {
        let path = fs::canonicalize(location).with_context(|| format!("cannot read {location}"))?;
        let name = path.to_str().with_context(|| format!("{location} is not UTF-8"))?.to_owned();
        if path.is_file() && !name.ends_with(EXTENSION) {
            bail!("{name} is not a file of flow records: their names end with {EXTENSION}");
        }
        let below = name.trim_start_matches('/').to_owned();
        (name, "file:///".to_owned(), below, path.is_dir())
    };
    let mut url = base;
    for byte in path.trim_end_matches('/').bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'=' => {
                url.push(byte.into());
            }
            _ => url.push_str(&format!("%{byte:02X}")),
        }
    }
    if is_folder && !url.ends_with('/') {
        url.push('/');
    }
    let url = ListingTableUrl::parse(url).with_context(|| format!("cannot read {name}"))?;
    Ok((name, url))
}

/// The first files of a location that are not empty.
async fn files(
    context: &SessionContext,
    url: &ListingTableUrl,
    limit: usize,
) -> datafusion::error::Result<Vec<ObjectMeta>> {
    let (state, store) = (context.state(), context.runtime_env().object_store(url)?);
    let files = url.list_all_files(&state, store.as_ref(), EXTENSION).await?;
    files.try_filter(|file| ready(file.size > 0)).take(limit).try_collect().await
}

/// Says that there are no files, and where some may be.
fn no_files(names: &[String]) -> String {
    let below = names.iter().find_map(|name| {
        let (files, _) = local_files(Path::new(name));
        let file =
            files.into_iter().find(|file| file.metadata().is_ok_and(|file| file.len() > 0))?;
        Some((name, file))
    });
    match below {
        Some((name, file)) => format!(
            "{name} has flow records only in other folders below it ({}): name these folders with -r",
            file.display()
        ),
        None => format!(
            "no complete *{EXTENSION} file in {} or its folders date=, hour= and sensor= yet: a running capture \
             completes one every --flow-file-time (default: 1m); -r names another folder",
            names.join(", ")
        ),
    }
}

/// The folders `COLUMN=VALUE` at the end of a location's path.
fn folders_above(name: &str) -> Vec<(String, String)> {
    let folders = name.trim_end_matches('/').rsplit('/');
    let is_file = name.ends_with(EXTENSION);
    let mut above: Vec<_> = folders
        .skip(usize::from(is_file))
        .map_while(|folder| folder.split_once('='))
        .map(|(column, value)| (column.to_owned(), value.to_owned()))
        .collect();
    above.reverse();
    above
}

/// The records of files, with the columns of their folders.
async fn records(context: &SessionContext, group: FileSet) -> Result<DataFrame> {
    let names = group.urls.iter().map(|url| shown(url.as_str())).collect::<Vec<_>>().join(", ");
    let columns = group.below.into_iter().map(|name| (name, DataType::Utf8)).collect();
    let options = listing_options()
        .with_table_partition_cols(columns)
        .with_session_config_options(&context.copied_config());
    // Of each location: files have the fields that were asked for.
    let mut schemas = Vec::new();
    for url in &group.urls {
        match options.infer_schema(&context.state(), url).await {
            Ok(schema) => schemas.push(Schema::clone(&schema)),
            Err(error) => {
                let error = unreadable(context, &group.urls).await.unwrap_or_else(|| error.into());
                return Err(error.context(format!("cannot read the flow records in {names}")));
            }
        }
    }
    let schema = Schema::try_merge(schemas)
        .with_context(|| format!("the columns of the flow records in {names} differ"))?;
    let config = ListingTableConfig::new_with_multi_paths(group.urls)
        .with_listing_options(options)
        .with_schema(Arc::new(schema));
    let is_record = |schema: &SchemaRef| schema.field_with_name("flowStartNanoseconds").is_ok();
    if !config.file_schema.as_ref().is_some_and(is_record) {
        bail!("there are no flow records in {names}: the files have other columns");
    }
    let mut frame = context.read_table(Arc::new(ListingTable::try_new(config)?))?;
    for (column, value) in group.above {
        if !frame.schema().has_column_with_unqualified_name(&column) {
            frame = frame.with_column(&column, lit(value))?;
        }
    }
    Ok(frame)
}

/// The first file that cannot be read, and why.
async fn unreadable(context: &SessionContext, urls: &[ListingTableUrl]) -> Option<anyhow::Error> {
    for url in urls {
        let store = context.runtime_env().object_store(url).ok()?;
        for file in files(context, url, usize::MAX).await.ok()? {
            let one = std::slice::from_ref(&file);
            let schema = ParquetFormat::default().infer_schema(&context.state(), &store, one).await;
            if let Err(error) = schema {
                let name = shown(&format!("{}{}", url.object_store(), file.location));
                let is_damaged = matches!(error.find_root(), DataFusionError::ParquetError(_));
                let what = if is_damaged {
                    format!("{name} is not a complete Parquet file: move it to another folder")
                } else {
                    format!("cannot read {name}")
                };
                return Some(anyhow::Error::from(error).context(what));
            }
        }
    }
    None
}

/// A URL for messages.
fn shown(url: &str) -> String {
    url.strip_prefix("file://").unwrap_or(url).to_owned()
}

/// Files of records in a folder that are whole, in the order of their names, and the folders that could not be read. One
/// below it that was removed in the meantime has no files. A folder that a link leads to, too, has its own name.
pub(crate) fn local_files(top: &Path) -> (Vec<PathBuf>, Vec<(PathBuf, Error)>) {
    let (mut files, mut faults) = (Vec::new(), Vec::new());
    // Those behind links come last, so the names do not depend on the order that the file system has.
    let mut folders = BTreeSet::from([(false, top.to_owned())]);
    // A link may lead to a folder above it.
    let mut seen = HashSet::new();
    while let Some((is_linked, folder)) = folders.pop_first() {
        if let Ok(path) = folder.canonicalize()
            && !seen.insert(path)
        {
            continue;
        }
        let entries = match fs::read_dir(&folder).and_then(Iterator::collect::<io::Result<Vec<_>>>)
        {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound && folder != top => continue,
            Err(error) => {
                let what = format!("cannot read {}", folder.display());
                faults.push((folder, Error::from(error).context(what)));
                continue;
            }
        };
        for entry in entries {
            let path = entry.path();
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if path.is_dir() {
                let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
                folders.insert((is_linked || is_link, path));
            } else if !hidden && path.extension().is_some_and(|extension| extension == "parquet") {
                files.push(path);
            }
        }
    }
    files.sort();
    (files, faults)
}
