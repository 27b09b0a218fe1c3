//! The policies, compiled for the world whose people they ask.
//!
//! Owns the order of the checks, and which tenants have issuers whose tokens put people in groups. The check itself is `placet-policy`'s.

use placet_policy::{
    bundle::{BundleProblem, BundleSource},
    snapshot::Snapshot,
    staffing::{self, Staff},
};

use super::World;
use crate::{config::load::Config, failure::Failure};

impl World {
    /// Compiles `bundle` for this world, whose people must be able to satisfy its gates.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(crate) fn compile(
        &self,
        bundle: &BundleSource,
        config: &Config,
    ) -> Result<Snapshot, Vec<BundleProblem>> {
        self.check_staff(bundle, config)?;
        Snapshot::compile(bundle, &self.checked(), &self.directory, &config.environment, 1)
    }

    /// Refuses the policies where they ask people whom the directory does not have.
    ///
    /// # Errors
    /// [`Failure`] with each of them.
    pub(crate) fn require_staff(&self, config: &Config) -> Result<(), Failure> {
        self.check_staff(&self.bundle, config).map_err(|problems| refused(&problems))
    }

    /// Whether every gate of `bundle` can be satisfied by people of the directory.
    ///
    /// # Errors
    /// Each gate that asks a group that nobody is in, or more people than there are.
    pub(crate) fn check_staff(
        &self,
        bundle: &BundleSource,
        config: &Config,
    ) -> Result<(), Vec<BundleProblem>> {
        let issuers = config.identity.issuers.iter();
        let claimed = issuers.filter(|issuer| issuer.groups_claim.is_some());
        let claimed = claimed.map(|issuer| issuer.tenant.clone()).collect();
        let contracts = self.checked();
        let staff = Staff { directory: &self.directory, claimed: &claimed, contracts: &contracts };
        staffing::check(bundle, &staff)
    }
}

/// Why the engine does not start with a bundle.
pub(crate) fn refused(problems: &[BundleProblem]) -> Failure {
    let failure = Failure::new("the engine does not start");
    let failure = problems.iter().fold(failure, |failure, problem| failure.because(problem));
    failure.try_this("`placet policy check` says the same, without starting anything")
}
