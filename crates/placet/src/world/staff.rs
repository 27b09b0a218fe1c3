//! The policies, compiled for the world whose people they need.
//!
//! Owns the order of the checks, and which tenants have issuers whose tokens assign groups. The check itself is `placet-policy`'s.

use placet_policy::{
    bundle::{BundleProblem, BundleSource},
    snapshot::Snapshot,
    staffing::{self, Staff},
};
use placet_types::clock::Clock as _;

use super::World;
use crate::{clock::SystemClock, config::load::Config, failure::Failure};

impl World {
    /// Compiles `bundle` for this world, whose people must be able to satisfy its gates and to lift its freezes.
    pub(crate) fn compile(
        &self,
        bundle: &BundleSource,
        config: &Config,
    ) -> Result<Snapshot, Vec<BundleProblem>> {
        let issuers = config.identity.issuers.iter();
        let claimed = issuers.filter(|issuer| issuer.groups_claim.is_some());
        let claimed = claimed.map(|issuer| issuer.tenant.clone()).collect();
        let contracts = self.checked();
        let staff = Staff {
            directory: &self.directory,
            claimed: &claimed,
            contracts: &contracts,
            now: SystemClock.now(),
        };
        let policies =
            Snapshot::compile(bundle, &contracts, &self.directory, &config.environment, 1)?;
        staffing::check(&policies, &staff)?;
        Ok(policies)
    }
}

/// Why a bundle is not used.
pub(crate) fn refused(problems: &[BundleProblem]) -> Failure {
    let failure = Failure::new("the policies cannot be used");
    let failure = problems.iter().fold(failure, |failure, problem| failure.because(problem));
    failure.try_this("`placet policy check` says the same without a server")
}
