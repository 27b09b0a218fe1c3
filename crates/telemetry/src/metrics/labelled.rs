//! A metric with labels, and the limit of its series.
//!
//! Owns the values of labels. Their names are given where the metric is registered.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};

use prometheus_client::metrics::family::{Family, MetricConstructor};

/// The series that one metric may have. Contracts bound them long before; this is for the case that something is wrong.
pub const SERIES_MAX: usize = 4_096;

/// The labels of one series, in the order of their names.
pub(super) type Labels<const N: usize> = [(&'static str, Cow<'static, str>); N];

/// A metric with `N` labels.
#[derive(Debug)]
pub(super) struct Labelled<const N: usize, M, C = fn() -> M> {
    names: [&'static str; N],
    family: Family<Labels<N>, M, C>,
    series: AtomicUsize,
}

impl<const N: usize, M: Clone, C: MetricConstructor<M>> Labelled<N, M, C> {
    pub(super) fn new(names: [&'static str; N], family: Family<Labels<N>, M, C>) -> Self {
        Self { names, family, series: AtomicUsize::new(0) }
    }

    /// The series of these values, or that of all others where there are too many.
    pub(super) fn of(&self, values: [&str; N]) -> M {
        let mut values = values.into_iter();
        let labels =
            self.names.map(|name| (name, Cow::Owned(values.next().unwrap_or_default().to_owned())));
        if let Some(metric) = self.family.get(&labels) {
            return metric.clone();
        }
        let has_room = self.series.fetch_add(1, Ordering::Relaxed) < SERIES_MAX;
        let other = self.names.map(|name| (name, Cow::Borrowed("other")));
        self.family.get_or_create_owned(if has_room { &labels } else { &other })
    }
}
