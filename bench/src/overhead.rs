//! What governing costs: the same call directly and through Placet, in turns, in one run.
//!
//! Owns the pairs and their order. Invariant: a ratio is of two neighbouring rounds, so that what slows the machine down for a
//! while slows both sides down.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::{
    contract,
    direct::Direct,
    engine::{Call, Engine},
    load::{self, Plan},
    peer::{LOOK, NOTE, Peer, Transport},
    progress,
    stats::{Numbers, Sample, median},
};

const CONCURRENCIES: [usize; 2] = [1, 32];

/// One comparison.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Comparison {
    /// `read` or `write`.
    pub(crate) call: &'static str,
    /// How the MCP server is reached.
    pub(crate) transport: Transport,
    /// Callers at the same time.
    pub(crate) concurrency: usize,
    /// Without Placet.
    pub(crate) direct: Numbers,
    /// With it.
    pub(crate) governed: Numbers,
    /// Governed by direct, of the medians of neighbouring rounds.
    pub(crate) ratio: Ratio,
}

impl Comparison {
    /// What the median call takes longer, in milliseconds.
    pub(crate) fn added_ms(&self) -> f64 {
        self.governed.p50_ms - self.direct.p50_ms
    }
}

/// The ratio of two latencies over several pairs of rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Ratio {
    /// In the middle.
    pub(crate) median: f64,
    /// The smallest.
    pub(crate) least: f64,
    /// The largest.
    pub(crate) most: f64,
}

impl Ratio {
    fn of(ratios: &[f64]) -> Option<Self> {
        Some(Self {
            median: median(ratios)?,
            least: ratios.iter().copied().min_by(f64::total_cmp)?,
            most: ratios.iter().copied().max_by(f64::total_cmp)?,
        })
    }
}

/// Compares reads and writes over both transports.
pub(crate) async fn measure(
    plan: &Plan,
    engine: &Engine,
    peer: &Peer,
    own: &Path,
) -> Result<Vec<Comparison>> {
    let mut comparisons = Vec::new();
    for transport in Transport::ALL {
        let direct = Direct::connect(transport, own, peer.url()).await?;
        for (call, tool) in [("read", LOOK), ("write", NOTE)] {
            for concurrency in CONCURRENCIES {
                progress(&format!("a {call} over {transport}, concurrency {concurrency}"));
                let one = Pairing { call, tool, transport, concurrency };
                comparisons.push(one.compare(plan, engine, &direct).await?);
            }
        }
        direct.close().await?;
    }
    Ok(comparisons)
}

/// What is compared.
#[derive(Debug, Clone, Copy)]
struct Pairing {
    call: &'static str,
    tool: &'static str,
    transport: Transport,
    concurrency: usize,
}

impl Pairing {
    async fn compare(self, plan: &Plan, engine: &Engine, direct: &Direct) -> Result<Comparison> {
        let plain = direct.caller(self.tool);
        let governed =
            engine.caller(Call::new(contract::tool(self.transport, self.tool), self.tool));
        let plain = move || plain.clone().call();
        let governed = move || governed.clone().call();
        load::run(self.concurrency, plan.warm_up, plain.clone()).await?;
        load::run(self.concurrency, plan.warm_up, governed.clone()).await?;
        let (mut one, mut other, mut ratios) = (Sample::default(), Sample::default(), Vec::new());
        for _pair in 0..plan.pairs {
            let a = load::run(self.concurrency, plan.round, plain.clone()).await?;
            let b = load::run(self.concurrency, plan.round, governed.clone()).await?;
            if let (Some(a), Some(b)) = (a.counts(), b.counts()) {
                ratios.push(b.p50_ms / a.p50_ms);
            }
            one.join(a);
            other.join(b);
        }
        let none = "no call ended in time";
        Ok(Comparison {
            call: self.call,
            transport: self.transport,
            concurrency: self.concurrency,
            direct: one.counts().context(none)?,
            governed: other.counts().context(none)?,
            ratio: Ratio::of(&ratios).context(none)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Ratio;

    #[test]
    fn a_ratio_is_given_with_its_spread() {
        assert_eq!(Ratio::of(&[3.0, 2.0, 4.0]), Some(Ratio { median: 3.0, least: 2.0, most: 4.0 }));
        assert_eq!(Ratio::of(&[]), None);
    }
}
