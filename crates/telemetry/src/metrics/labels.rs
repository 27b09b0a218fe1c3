//! The label sets of the metrics.
//!
//! Owns which labels a metric has. Texts that are not `'static` come from contracts or from the actor tree.

use prometheus_client::encoding::EncodeLabelSet;

/// Where everything goes that has no place among the series any more.
pub(crate) const OTHER: &str = "other";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CallLabels {
    pub(crate) adapter: String,
    pub(crate) capability: String,
    pub(crate) status: &'static str,
    pub(crate) code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CapabilityLabels {
    pub(crate) adapter: String,
    pub(crate) capability: String,
}

impl CapabilityLabels {
    pub(crate) fn of(adapter: &str, capability: &str) -> Self {
        Self { adapter: adapter.to_owned(), capability: capability.to_owned() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct AdapterLabels {
    pub(crate) adapter: String,
}

impl AdapterLabels {
    pub(crate) fn of(adapter: &str) -> Self {
        Self { adapter: adapter.to_owned() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ActorLabels {
    pub(crate) actor: String,
}

impl ActorLabels {
    pub(crate) fn of(actor: &str) -> Self {
        Self { actor: actor.to_owned() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ChannelLabels {
    pub(crate) channel: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct NoticeLabels {
    pub(crate) channel: String,
    pub(crate) result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct StageLabels {
    pub(crate) stage: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ResultLabels {
    pub(crate) result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct WhatLabels {
    pub(crate) what: &'static str,
}
