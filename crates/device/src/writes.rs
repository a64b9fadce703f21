//! Writes of a transaction in flight together.

use crate::{BlockDevice, DeviceError, Durable, Ticket};
use seekless_units::Lba;

/// Writes to one device in flight together, for a journal: all blocks of a transaction are
/// submitted, all are waited for, the device is flushed, and only then the commit block is
/// submitted.
#[derive(Debug, Default)]
pub struct Writes {
    under_way: Vec<Ticket>,
}

impl Writes {
    /// An empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { under_way: Vec::new() }
    }

    /// Submits one more.
    ///
    /// # Errors
    /// As [`BlockDevice::submit`]; the previous ones are still in flight.
    pub fn submit(
        &mut self,
        device: &dyn BlockDevice,
        at: Lba,
        buf: &[u8],
        durable: Durable,
    ) -> Result<(), DeviceError> {
        self.under_way.extend(device.submit(at, buf, durable)?);
        Ok(())
    }

    /// Whether all have completed, without waiting.
    ///
    /// # Errors
    /// The first failed one, by order of submission; it is no longer in flight.
    pub fn are_complete(&mut self, device: &dyn BlockDevice) -> Result<bool, DeviceError> {
        let mut failed = Ok(());
        self.under_way.retain(|&ticket| match device.is_complete(ticket) {
            Ok(complete) => !complete,
            Err(error) => {
                if failed.is_ok() {
                    failed = Err(error);
                }
                false
            }
        });
        failed.map(|()| self.under_way.is_empty())
    }

    /// Returns once all have completed, including failed ones.
    ///
    /// # Errors
    /// The first failed one, by order of submission.
    pub fn wait(&mut self, device: &dyn BlockDevice) -> Result<(), DeviceError> {
        let mut failed = Ok(());
        for ticket in self.under_way.drain(..) {
            failed = failed.and(device.wait(ticket));
        }
        failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekless_units::ByteLen;
    use std::io::Error;
    use std::sync::Mutex;

    /// A device whose writes are in flight until they are waited for. Writes of ones fail then.
    #[derive(Default)]
    struct Late(Mutex<(Vec<Option<u8>>, Vec<String>)>);

    impl Late {
        fn did(&self, what: &str) {
            self.0.lock().unwrap().1.push(what.into());
        }
    }

    impl BlockDevice for Late {
        fn len(&self) -> ByteLen {
            ByteLen::new(1 << 20)
        }

        fn read(&self, _: Lba, buf: &mut [u8]) -> Result<(), DeviceError> {
            buf.fill(0);
            Ok(())
        }

        fn write(&self, at: Lba, buf: &[u8]) -> Result<(), DeviceError> {
            let ticket = self.submit(at, buf, Durable::AfterFlush)?;
            ticket.map_or(Ok(()), |ticket| self.wait(ticket))
        }

        fn submit(
            &self,
            at: Lba,
            buf: &[u8],
            durable: Durable,
        ) -> Result<Option<Ticket>, DeviceError> {
            self.did(&format!("submit {at} {durable:?}"));
            let under_way = &mut self.0.lock().unwrap().0;
            under_way.push(Some(buf[0]));
            Ok(Some(Ticket::new(under_way.len() as u64 - 1)))
        }

        fn is_complete(&self, ticket: Ticket) -> Result<bool, DeviceError> {
            Ok(self.0.lock().unwrap().0[ticket.number() as usize].is_none())
        }

        fn wait(&self, ticket: Ticket) -> Result<(), DeviceError> {
            self.did(&format!("wait {}", ticket.number()));
            match self.0.lock().unwrap().0[ticket.number() as usize].take() {
                Some(1) => {
                    let source = Error::other(format!("write {}", ticket.number()));
                    Err(DeviceError::Io { at: Lba::ZERO, source })
                }
                _ => Ok(()),
            }
        }

        fn flush(&self) -> Result<(), DeviceError> {
            self.did("flush");
            Ok(())
        }
    }

    /// A commit in the manner of a journal.
    fn commit(device: &Late, blocks: [u8; 3]) -> Result<(), DeviceError> {
        let mut writes = Writes::new();
        for (at, byte) in (0..).zip(blocks) {
            writes.submit(device, Lba::new(at), &[byte; 512], Durable::AfterFlush)?;
        }
        assert!(!writes.are_complete(device)?, "nobody has waited for them");
        writes.wait(device)?;
        device.flush()?;
        writes.submit(device, Lba::new(3), &[9; 512], Durable::OnCompletion)?;
        writes.wait(device)?;
        assert!(writes.are_complete(device)?);
        Ok(())
    }

    #[test]
    fn a_commit_block_goes_when_all_others_are_on_the_disk() {
        let device = Late::default();
        commit(&device, [2, 3, 4]).unwrap();
        let did = device.0.lock().unwrap().1.join(", ");
        let blocks = "submit 0 AfterFlush, submit 1 AfterFlush, submit 2 AfterFlush";
        let block = "flush, submit 3 OnCompletion, wait 3";
        assert_eq!(did, format!("{blocks}, wait 0, wait 1, wait 2, {block}"));
    }

    #[test]
    fn a_write_that_fails_late_fails_the_wait_for_all() {
        let device = Late::default();
        let error = commit(&device, [2, 1, 1]).unwrap_err().to_string();
        assert!(error.contains("write 1"), "the first of them: {error}");
        let did = &device.0.lock().unwrap().1;
        assert!(did.contains(&"wait 2".into()) && !did.contains(&"flush".into()), "{did:?}");
    }

    #[test]
    fn a_device_without_a_queue_completes_at_once() {
        let device = crate::MemoryDevice::new(vec![0; 4096]);
        let mut writes = Writes::new();
        writes.submit(&device, Lba::new(1), &[7; 512], Durable::OnCompletion).unwrap();
        assert!(writes.are_complete(&device).unwrap());
        let mut read = [0; 512];
        device.read(Lba::new(1), &mut read).unwrap();
        assert_eq!(read, [7; 512]);
    }
}
