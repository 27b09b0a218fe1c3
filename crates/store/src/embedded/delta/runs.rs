//! What entries say of runs: that they were opened, what was taken from their budgets and given back, what came into their contexts.
//!
//! Owns the edits that make a run what it is. An entry says only what changed: the outcome of all of them stands in the index.

use placet_ledger::reservation::Reservation;
use placet_ledger::run::{RunKey, RunRecord, RunTaint};

use super::Delta;
use crate::embedded::{keys, slip};

impl Delta {
    pub(super) fn runs(
        &mut self,
        seq: u64,
        opened: &[RunRecord],
        (reserve, refund, taint): (Option<&Reservation>, Option<&Reservation>, Option<&RunTaint>),
    ) -> Result<(), String> {
        for run in opened {
            if self.run(&run.key)?.is_none() {
                self.counts.runs = self.counts.runs.saturating_add(1);
                self.put_run(seq, run)?;
            }
        }
        if let Some(reservation) = reserve {
            let run = self.run(&reservation.run)?;
            let run = run.ok_or("it reserves from a run that is not open")?;
            let run = run.reserved(reservation.cents).ok_or("it overdraws its run's budget")?;
            self.put_run(seq, &run)?;
            for meter in &reservation.meters {
                let kept = self.run(&meter.key(&reservation.run))?;
                if kept.is_none() {
                    self.counts.runs = self.counts.runs.saturating_add(1);
                }
                let taken = meter.taken(&reservation.run, kept.as_ref(), reservation.cents);
                self.put_run(seq, &taken.map_err(|error| format!("it overdraws: {error}"))?)?;
            }
        }
        if let Some(refund) = refund
            && let Some(run) = self.run(&refund.run)?
        {
            self.put_run(seq, &run.refunded(refund.cents))?;
        }
        if let Some(brought) = taint {
            for key in brought.keys() {
                if let Some(run) = self.run(&key)?
                    && let Some(tainted) = run.tainted(&brought.taint)
                {
                    self.put_run(seq, &tainted)?;
                }
            }
        }
        Ok(())
    }

    fn run(&self, key: &RunKey) -> Result<Option<RunRecord>, String> {
        let Some(body) = self.body(&keys::run(key))? else { return Ok(None) };
        let run = serde_json::from_slice(&body);
        run.map(Some).map_err(|error| format!("a run cannot be read: {error}"))
    }

    fn put_run(&mut self, seq: u64, run: &RunRecord) -> Result<(), String> {
        let body = serde_json::to_vec(run).map_err(|error| error.to_string())?;
        self.put(seq, vec![slip::run_edit(keys::run(&run.key), seq, &body)]);
        Ok(())
    }
}
