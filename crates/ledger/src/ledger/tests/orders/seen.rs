//! What occurred in all plays: orders in which nothing ever ran would prove nothing.

use super::{Play, recount::Stands};

#[derive(Debug, Default)]
pub(super) struct Seen {
    ran: usize,
    ran_edited: usize,
    ran_rewritten: usize,
    ran_escalated: usize,
    ran_with_external_tenants: usize,
    ran_after_nothing: usize,
    unknown: usize,
    uses: u32,
    denied: usize,
}

impl Seen {
    pub(super) fn note(&mut self, play: &Play) {
        for (number, story) in play.stories.iter().enumerate() {
            let ran = !play.executed[number].is_empty();
            self.ran += usize::from(ran);
            self.ran_edited += usize::from(ran && story.edits() > 0);
            self.ran_rewritten += usize::from(ran && !story.authors.is_empty());
            self.ran_escalated += usize::from(ran && story.escalated);
            self.ran_with_external_tenants += usize::from(ran && number == 1);
            self.ran_after_nothing += usize::from(play.executed[number].len() > 1);
            self.unknown += usize::from(story.stands == Stands::Unknown);
            self.denied += usize::from(story.stands == Stands::Denied);
        }
        self.uses += play.uses;
    }

    /// Whether everything occurred often enough.
    pub(super) fn is_all(&self) -> bool {
        let often = self.ran > 20 && self.denied > 20 && self.uses > 10;
        let rare = self.ran_edited > 0
            && self.ran_rewritten > 0
            && self.ran_escalated > 0
            && self.ran_with_external_tenants > 0;
        often && rare && self.ran_after_nothing > 0 && self.unknown > 0
    }
}
