//! How a drill is ended early, one or all.

use super::Drills;
use crate::daemon::store::Record;

impl Drills {
    /// Ends a drill early and waits until its faults are gone; one that has ended is left as it is. `None` if there is none of that id.
    pub async fn abort(&self, id: &str, reason: &str) -> Option<Record> {
        let log = self.log(id)?;
        let sender = self.inner().entries.iter().find(|entry| entry.record.id == id)?.running.as_ref().map(|r| r.abort.clone());
        if let Some(sender) = sender {
            // A full channel means that it has reasons enough.
            let _ = sender.try_send(reason.to_owned());
        }
        log.ended().await;
        self.get(id).map(|(record, _)| record)
    }

    /// Starts no more drills, ends those that run, and waits for them.
    pub async fn stop(&self) {
        let running: Vec<String> = {
            let mut inner = self.inner();
            inner.is_stopping = true;
            inner.entries.iter().filter(|entry| entry.running.is_some()).map(|entry| entry.record.id.clone()).collect()
        };
        for id in &running {
            let sender =
                self.inner().entries.iter().find(|entry| entry.record.id == *id).and_then(|e| Some(e.running.as_ref()?.abort.clone()));
            if let Some(sender) = sender {
                let _ = sender.try_send("the daemon is stopping".to_owned());
            }
        }
        for id in &running {
            self.abort(id, "the daemon is stopping").await;
        }
    }
}
