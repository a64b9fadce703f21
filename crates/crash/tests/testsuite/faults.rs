//! Every rule of the engine, broken by hand, is seen by a built-in workload.

use crate::slice::some_or_all;
use crate::ufs::{InUse, Ufs};
use seekless_cache::{Config, Discipline};
use seekless_crash::campaign::{Sequences, built_in};
use seekless_crash::driver::{RunOptions, prepare, record};
use seekless_crash::explore::explore_run;
use seekless_crash::oracle::Promises;
use seekless_crash::workload::scheduled;
use seekless_crash::{Live, Recovered, Search, Target};
use seekless_device::{BlockDevice, VirtualClock};
use seekless_ffs::{LiveFault as Fault, Version};
use seekless_fs::check::Report;
use seekless_fs::{FsError, Inspect};
use seekless_units::ByteLen;
use std::sync::Arc;

/// UFS without one of its rules.
struct Broken(Ufs, Fault);

impl Target for Broken {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn has_xattrs(&self) -> bool {
        self.0.has_xattrs()
    }

    fn image_len(&self) -> ByteLen {
        self.0.image_len()
    }

    fn make(&self, device: &dyn BlockDevice) -> Result<(), FsError> {
        self.0.make(device)
    }

    fn mount(
        &self,
        device: Arc<dyn BlockDevice>,
        clock: Arc<VirtualClock>,
        config: Config,
    ) -> Result<Box<dyn Live>, FsError> {
        let mut live = self.0.live(device, clock, config)?;
        live.set_fault(self.1);
        Ok(Box::new(InUse(live)))
    }

    fn check(&self, device: Arc<dyn BlockDevice>) -> Result<Report, FsError> {
        self.0.check(device)
    }

    fn preen(&self, device: Arc<dyn BlockDevice>) -> Result<Recovered, FsError> {
        self.0.preen(device)
    }

    fn is_used_but_free(&self, code: &str) -> bool {
        self.0.is_used_but_free(code)
    }

    fn open(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn Inspect>, FsError> {
        self.0.open(device)
    }
}

/// The workload that shows each fault. docs/crash.md says which rule each breaks.
const SHOWN_BY: [(Fault, &str); 24] = [
    (Fault::EntryBeforeInode, "create"),
    (Fault::EntryBeforeParentLink, "fill"),
    (Fault::PointerBeforeBitmap, "create"),
    (Fault::PointerBeforeContents, "create"),
    (Fault::IndirectBeforeContents, "grow"),
    (Fault::IndirectBeforeLength, "cut-indirect"),
    (Fault::IndirectBeforeInit, "grow"),
    (Fault::ReuseBeforeClear, "recreate"),
    (Fault::ReuseBeforeMove, "append"),
    (Fault::MoveBeforeNames, "outgrow"),
    (Fault::GoneBeforeMove, "outgrow"),
    (Fault::InodeReusedEarly, "recreate"),
    (Fault::PartialCut, "cut-indirect"),
    (Fault::LinksEarly, "unlink"),
    (Fault::RenameLosesBoth, "rename-across"),
    (Fault::RenameIntoTheUnreached, "move-into-new"),
    (Fault::RenameIntoALoop, "nest"),
    (Fault::RenameOverOutOfPlace, "rename-over-directory"),
    (Fault::RenameOverWithOlderNames, "rename-moved-over"),
    (Fault::TurnAfterRenameOver, "rename-over-across"),
    (Fault::NameTwice, "rotate"),
    (Fault::FsyncWithoutContents, "overwrite"),
    (Fault::FsyncWithoutNames, "rename-across"),
    (Fault::FsyncWithOlderNames, "rename-within"),
];

/// Ways in which a workload's blocks are written, at most.
const SCHEDULES: u32 = 60;

/// Whether a state of a workload shows a fault, in any of the schedules.
fn is_seen(fault: Fault, workload: &str, version: Version) -> bool {
    let target = Broken(Ufs::of(version), fault);
    let sequences = Sequences { count: 1, seed: 1 };
    let scripts = built_in(workload, target.has_xattrs(), sequences).unwrap().expect("known");
    let base = prepare(&target, workload, &scripts[0].setup).unwrap();
    let search = Search { bound: 512, first_only: true, ..Search::exhaustive(1) };
    let promises = Promises::of(Discipline::SoftUpdates);
    (0..SCHEDULES).any(|schedule| {
        let script = scheduled(&scripts[0], schedule, 1);
        let run =
            record(&target, &base, &script, &RunOptions::new(Discipline::SoftUpdates)).unwrap();
        explore_run(&target, promises, &run, &search, &|_| {}).unwrap().failing > 0
    })
}

#[test]
fn every_broken_rule_is_seen_by_a_single_operation() {
    assert!(Fault::ALL.iter().all(|fault| SHOWN_BY.iter().any(|(known, _)| known == fault)));
    let mut unseen = Vec::new();
    // Some are shown by one order in dozens: each on one of the versions.
    let versions = [Version::Ufs1, Version::Ufs2].into_iter().cycle();
    for ((fault, workload), version) in
        SHOWN_BY.into_iter().step_by(some_or_all(2, 1)).zip(versions)
    {
        if !is_seen(fault, workload, version) {
            unseen.push((fault, workload, version));
        }
    }
    assert!(unseen.is_empty(), "{unseen:?}");
}

/// Which of all single operations see a fault.
#[test]
#[ignore = "a minute; prints a table"]
fn which_operations_see_which_fault() {
    for fault in Fault::ALL {
        let sees = |single: &seekless_crash::workload::Single| {
            is_seen(fault, single.name(), Version::Ufs2)
        };
        let all = seekless_crash::workload::Single::ALL;
        let names: Vec<&str> = all.iter().filter(|s| sees(s)).map(|s| s.name()).collect();
        println!("{fault:?}: {}", names.join(" "));
    }
}
