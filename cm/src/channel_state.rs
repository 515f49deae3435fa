//! [`State`]: what the lock of a channel guards, besides the ids.

use crate::error::{Error, Result};
use crate::raw_id::IdKey;
use crate::returns::Errno;
use crate::waiting::Sleepers;

#[derive(Default)]
pub(crate) struct State {
    /// The ids that were told of their first message, and whose `Established` was not taken yet.
    pub(crate) notified: Vec<IdKey>,
    /// The threads that wait for events.
    pub(crate) sleepers: Sleepers,
    /// The ids that have left a multicast group of which events may still wait. They do not migrate: the kernel would take the events along.
    stale: Vec<IdKey>,
}

impl State {
    /// Notes that events of `id` may wait which librdmacm must not see.
    pub(crate) fn add_stale(&mut self, id: IdKey) {
        if !self.stale.contains(&id) {
            self.stale.push(id);
        }
    }

    /// The id is gone, and its events with it.
    pub(crate) fn remove(&mut self, id: IdKey) {
        self.stale.retain(|stale| *stale != id);
        self.notified.retain(|notified| *notified != id);
    }

    pub(crate) fn is_stale(&self, id: IdKey) -> bool {
        self.stale.contains(&id)
    }

    /// Refuses to take an event while it may be one that librdmacm must not see.
    pub(crate) fn check_stale(&self) -> Result<()> {
        if self.stale.is_empty() {
            return Ok(());
        }
        let keys: Vec<String> = self.stale.iter().map(ToString::to_string).collect();
        let remedy = format!(
            "the device was removed while a multicast group was being left; first drop the ids with these keys (Id::key), and what \
             holds them: {}",
            keys.join(", ")
        );
        Err(Errno(libc::ENODEV).with_remedy("rdma_get_cm_event", "", remedy))
    }

    /// What forbids that the id's events go to another channel.
    pub(crate) fn check_migration(&self, id: IdKey, is_listening: bool) -> Result<()> {
        let rule = match (is_listening, self.is_stale(id)) {
            (true, _) => {
                "the id listens, and connection requests that come meanwhile would be lost; migrate it before it listens"
            }
            (_, true) => "the device was removed while the id was leaving a multicast group; drop the id",
            (false, false) => return Ok(()),
        };
        Err(Error::WrongState { call: "rdma_migrate_id", rule })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_id_stops_its_channel_by_name_until_it_is_gone() {
        let mut state = State::default();
        let (one, other) = (IdKey::next(), IdKey::next());
        assert!(state.check_stale().is_ok());
        state.add_stale(one);
        state.add_stale(one);
        state.add_stale(other);
        let error = state.check_stale().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        assert!(error.to_string().ends_with(&format!("and what holds them: {one}, {other}")), "{error}");
        state.remove(one);
        assert!(state.check_stale().unwrap_err().to_string().ends_with(&format!("them: {other}")));
        state.remove(other);
        assert!(state.check_stale().is_ok());
        // One that was never noted, or was noted on another channel, takes nothing away.
        state.remove(one);
        assert!(state.check_stale().is_ok());
    }

    #[test]
    fn an_id_with_stale_events_and_one_that_listens_stay_where_they_are() {
        let mut state = State::default();
        let (stale, other) = (IdKey::next(), IdKey::next());
        state.add_stale(stale);
        assert!(state.check_migration(other, false).is_ok());
        for (id, is_listening, part) in [(stale, false, "drop the id"), (other, true, "migrate it before it listens")] {
            let error = state.check_migration(id, is_listening).unwrap_err();
            assert!(
                matches!(error, Error::WrongState { call: "rdma_migrate_id", rule } if rule.contains(part)),
                "{error}"
            );
        }
    }
}
