//! [`MetricEncoder`]: the response to one scrape.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// Writes the metric families of one scrape. Names get the suffixes of Prometheus' conventions: the unit, and `_total`
/// for counters.
#[derive(Debug)]
pub struct MetricEncoder<'a, 'b> {
    pub(crate) encoder: &'a mut DescriptorEncoder<'b>,
}

impl MetricEncoder<'_, '_> {
    /// A family of counters, with these labels and a value for each of their combinations.
    ///
    /// If this or another method fails, the server responds with status 500.
    pub fn counters<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        labels: [&str; N],
        samples: impl IntoIterator<Item = ([impl AsRef<str>; N], u64)>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
        for (values, value) in samples {
            let set: [_; N] = std::array::from_fn(|at| (labels[at], values[at].as_ref()));
            family.encode_family(&set)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        Ok(())
    }

    /// A family of gauges, with these labels and a value for each of their combinations.
    pub fn gauges<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        labels: [&str; N],
        samples: impl IntoIterator<Item = ([impl AsRef<str>; N], f64)>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for (values, value) in samples {
            let set: [_; N] = std::array::from_fn(|at| (labels[at], values[at].as_ref()));
            family.encode_family(&set)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// One counter without labels.
    pub fn counter(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: u64,
    ) -> fmt::Result {
        let mut one = self.encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
        one.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    /// One gauge without labels.
    pub fn gauge(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: f64,
    ) -> fmt::Result {
        self.encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?.encode_gauge(&value)
    }

    /// One counter of seconds without labels.
    pub(crate) fn seconds(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let unit = Some(&Unit::Seconds);
        let mut one = self.encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
        one.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }
}

/// Writes metric families by [`MetricEncoder`], a row each: the method (`counter`, `gauge`, `counters` or `gauges`), name,
/// help, the labels of a method for several, `in (UNIT)`, and the value or the samples. Returns the first error.
#[macro_export]
macro_rules! metrics {
    ($encoder:expr;
        $($kind:ident $name:literal $help:literal $([$($label:literal),+])? $(in ($unit:expr))? = $value:expr;)+) => {
        $($encoder.$kind($name, $help, $crate::metrics!(@$($unit)?), $([$($label),+],)? $value)?;)+
    };
    (@) => { None };
    (@$unit:expr) => { Some(&$unit) };
}
