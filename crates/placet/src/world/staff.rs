//! The policies, compiled for the world whose people they ask.
//!
//! Owns the order of the checks, and which tenants have issuers whose tokens put people in groups. The check itself is `placet-policy`'s.

use placet_policy::{
    bundle::{BundleProblem, BundleSource},
    snapshot::Snapshot,
    staffing::{self, Staff},
};

use super::World;
use crate::config::load::Config;

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
