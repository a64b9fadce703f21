//! Who uses the machine, and for what.

use crate::volume::Volume;
use crate::{DAY, LAST_CHANGE, Seconds};
use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, HashSet};

/// Something that happens.
pub(crate) enum Action {
    /// A habit.
    Run(&'static str),
    /// Some files, chosen at random.
    Noise,
    /// All files.
    Backup,
    /// Every so-manieth file of a habit is removed and made again.
    Reinstall(&'static str, usize),
    /// Files that nobody uses come and go.
    Churn,
}

impl Action {
    pub(crate) fn program(&self) -> &'static str {
        match self {
            Self::Run(name) => name,
            Self::Noise => "noise",
            Self::Backup => "backup",
            Self::Reinstall(..) | Self::Churn => "package",
        }
    }
}

pub(crate) struct People {
    habits: BTreeMap<&'static str, Vec<u32>>,
    temporary: Vec<u32>,
}

fn below(random: &mut Pcg64Mcg, end: usize) -> usize {
    (random.next_u64() % end as u64) as usize
}

impl People {
    /// Fills the volume and picks the files of habits.
    pub(crate) fn new(random: &mut Pcg64Mcg, volume: &mut Volume) -> Self {
        while volume.fullness() < 0.6 {
            let blocks = 1 + random.next_u64() % 24;
            volume.create(random, blocks);
        }
        let mut files = volume.inodes();
        for at in (1..files.len()).rev() {
            files.swap(at, below(random, at + 1));
        }
        let mut files = files.into_iter();
        let names = ["mail", "editor", "compiler", "server", "game", "browser"];
        let sizes = [35, 50, 60, 40, 45, 50];
        let mut habits: BTreeMap<&'static str, Vec<u32>> = BTreeMap::new();
        // Libraries of all.
        let shared: Vec<u32> = files.by_ref().take(5).collect();
        for (name, size) in names.into_iter().zip(sizes) {
            let own = files.by_ref().take(size);
            habits.insert(name, shared.iter().copied().chain(own).collect());
        }
        // Some use what others use, too.
        let borrowed: Vec<u32> = habits["editor"][10..18].to_vec();
        habits.entry("browser").or_default().splice(20..20, borrowed);
        Self { habits, temporary: Vec::new() }
    }

    pub(crate) fn files(&self, name: &str) -> &[u32] {
        &self.habits[name]
    }

    /// What happens on a day.
    pub(crate) fn day(&self, random: &mut Pcg64Mcg, day: u64) -> Vec<(Seconds, Action)> {
        let mut agenda = vec![(day * DAY + 3 * 3600, Action::Backup)];
        let mut at =
            |from: u64, hours: u64| day * DAY + from * 3600 + random.next_u64() % (hours * 3600);
        for &name in self.habits.keys() {
            let is_there = match name {
                "browser" => day >= 8,
                "game" => day < 10,
                _ => true,
            };
            for _ in 0..if is_there { 2 } else { 0 } {
                agenda.push((at(7, 14), Action::Run(name)));
            }
        }
        for _ in 0..6 {
            agenda.push((at(0, 24), Action::Noise));
        }
        let change = day * DAY + 5 * 3600;
        match day {
            12 => agenda.push((change, Action::Churn)),
            15 => agenda.push((change, Action::Reinstall("editor", 3))),
            LAST_CHANGE => {
                agenda.push((change, Action::Reinstall("compiler", 1)));
                agenda.push((change, Action::Reinstall("server", 5)));
            }
            _ => {}
        }
        agenda
    }

    /// Does it; the files that are opened, in order.
    pub(crate) fn act(
        &mut self,
        random: &mut Pcg64Mcg,
        volume: &mut Volume,
        action: &Action,
    ) -> Vec<u32> {
        match action {
            Action::Run(name) => self.run(random, volume, name),
            Action::Noise => {
                let files = volume.inodes();
                (0..25).map(|_| files[below(random, files.len())]).collect()
            }
            Action::Backup => volume.inodes(),
            Action::Reinstall(name, every) => {
                for file in self.habits.entry(name).or_default().iter_mut().skip(5).step_by(*every)
                {
                    let blocks = volume.blocks_of(*file);
                    volume.remove(*file);
                    *file = volume.create(random, blocks);
                }
                Vec::new()
            }
            Action::Churn => {
                let used: HashSet<u32> = self.habits.values().flatten().copied().collect();
                for _ in 0..300 {
                    let files = volume.inodes();
                    let file = files[below(random, files.len())];
                    if !used.contains(&file) {
                        volume.remove(file);
                        let blocks = 1 + random.next_u64() % 24;
                        volume.create(random, blocks);
                    }
                }
                Vec::new()
            }
        }
    }

    /// Two files of its own are made each time; now and then one is left out; what runs
    /// side by side does not come in the same order each time.
    fn run(&mut self, random: &mut Pcg64Mcg, volume: &mut Volume, name: &str) -> Vec<u32> {
        let mut files = self.habits[name].clone();
        if below(random, 3) == 0 {
            files.remove(below(random, files.len()));
        }
        if name == "compiler" {
            for at in 1..files.len() {
                if below(random, 20) == 0 {
                    files.swap(at - 1, at);
                }
            }
        }
        for _ in 0..2 {
            let file = volume.create(random, 3);
            self.temporary.push(file);
            files.insert(below(random, files.len()), file);
        }
        files
    }

    pub(crate) fn clean_up(&mut self, volume: &mut Volume) {
        self.temporary.drain(..).for_each(|file| volume.remove(file));
    }
}
