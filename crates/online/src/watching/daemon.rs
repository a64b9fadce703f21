//! The daemon: listens, learns, and works when the machine is idle.

use super::listener::Listener;
use super::request::{PendingRequest, Requests};
use super::{Config, Done, Lock, Store, Worker, files, now};
use crate::relayout::Target;
use seekless_host::pressure::{self, Resource};
use seekless_images::{Error, ErrorKind};
use seekless_layout::habits::{Filed, Habits, Idle, IdleRules, MachineState, Round, Seconds, Wait};
use serde_json::json;
use signal_hook::iterator::Signals;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// Time during which events may accumulate, after some have arrived.
const PACE: Duration = Duration::from_millis(5);

/// Maximum wait for events, in milliseconds.
const WAIT: u16 = 1000;

/// Interval of saving the state.
const SAVE: Seconds = 300;

/// Delay of the next work after an error.
const AFTER_ERROR: Seconds = 3600;

/// Delay of the next check of a volume that is too full.
const AFTER_FULL: Seconds = 600;

/// The loop that watches a volume, until a signal or a request ends it.
pub struct Daemon<'a> {
    mount: &'a Path,
    config: &'a Config,
    dry_run: bool,
    store: Store,
    requests: Requests,
    /// The locks, as long as it runs.
    _lock: Lock,
    /// The directory of the mount, on which files are opened by inode number.
    on: File,
    listener: Listener,
    habits: Habits,
    idle: Idle,
    signals: Signals,
    saved: Seconds,
    looked: Seconds,
    /// No work is started before this.
    not_before: Seconds,
    /// Whether there are unsaved changes of the state.
    is_new: bool,
    /// The reason why the last work ended.
    waits: Option<Wait>,
}

impl<'a> Daemon<'a> {
    /// Begins to listen.
    ///
    /// # Errors
    /// If the volume's files cannot be moved, another daemon runs for it, or the kernel refuses to
    /// report opens.
    pub fn new(
        mount: &'a Path,
        config: &'a Config,
        root: &Path,
        dry_run: bool,
        signals: Signals,
    ) -> Result<Self, Error> {
        let target = Target::new(mount)?;
        let store = Store::new(root, &target)?;
        let Some(lock) = store.lock()? else {
            let what = "is watched already, or worked on by hand";
            return Err(Error::new(ErrorKind::System, what).about(mount.display()));
        };
        let listener = Listener::new(&target.mount.dir, &config.record.ignore)?;
        let block_size = target.block_size()?;
        if !dry_run {
            target.probe(block_size)?;
        }
        let habits = store.load(config.rules())?;
        // Not that of the target: the lock of the volume is released with its last descriptor.
        let dir = &target.mount.dir;
        let on = File::open(dir).map_err(|error| Error::io(dir.display(), &error))?;
        let requests = Requests::new(&store)?;
        let (idle, moment) = (Idle::default(), now());
        let daemon = Self {
            mount,
            config,
            dry_run,
            store,
            requests,
            _lock: lock,
            on,
            listener,
            habits,
            idle,
            signals,
            saved: moment,
            looked: 0,
            not_before: 0,
            is_new: true,
            waits: None,
        };
        let known = daemon.habits.habits().len();
        let (shown, uuid) = (mount.display(), daemon.store.uuid());
        tracing::info!("{shown}: watching volume {uuid}; {known} habits are known");
        daemon.save()?;
        Ok(daemon)
    }

    /// Listens until a signal comes.
    ///
    /// # Errors
    /// If the kernel no longer reports opens, or the state cannot be saved.
    pub fn run(mut self) -> Result<(), Error> {
        let mut ticked = 0;
        loop {
            self.listener.wait(WAIT);
            if self.listener.tell(&mut self.habits)? {
                std::thread::sleep(PACE);
            }
            if self.signals.pending().next().is_some() {
                break;
            }
            let moment = now();
            if moment == ticked {
                continue;
            }
            ticked = moment;
            self.file(moment, moment);
            while let Some(asked) = self.requests.next() {
                self.answer(asked);
            }
            if moment.abs_diff(self.looked) >= self.config.idle.check.0 {
                self.looked = moment;
                self.look(moment)?;
            }
            if self.is_new && moment.abs_diff(self.saved) >= SAVE {
                self.try_to_keep();
            }
        }
        // Files the current episodes too.
        self.listener.tell(&mut self.habits)?;
        self.file(now(), Seconds::MAX);
        self.keep()?;
        let (shown, lost) = (self.mount.display(), self.listener.lost());
        tracing::info!("{shown}: no longer watched; events lost: {lost}");
        Ok(())
    }

    fn keep(&mut self) -> Result<(), Error> {
        self.save()?;
        (self.saved, self.is_new) = (now(), false);
        Ok(())
    }

    /// Continues if the state cannot be saved, for instance on a full volume. Saving is tried again
    /// later; at the end a failure is an error.
    fn try_to_keep(&mut self) {
        if let Err(failure) = self.keep() {
            tracing::warn!("{failure}; what was learnt is not saved, which is tried again");
            self.saved = now();
        }
    }

    fn save(&self) -> Result<(), Error> {
        self.store.save(&self.habits)
    }

    /// Files the episodes that end by `end`.
    fn file(&mut self, moment: Seconds, end: Seconds) {
        for episode in self.habits.due(end) {
            let on = &self.on;
            let filed = self.habits.file(moment, episode, &mut |file| files::look(on, file));
            self.is_new |= filed != Filed::Small;
        }
    }

    /// Works if the machine is idle.
    fn look(&mut self, moment: Seconds) -> Result<(), Error> {
        let state = MachineState {
            io_pressure: pressure::waiting(Resource::Io),
            cpu_pressure: pressure::waiting(Resource::Cpu),
            load: pressure::load(),
            opens: self.listener.rate().unwrap_or(0.0),
            on_battery: pressure::is_on_battery(),
        };
        let rules = self.habits.rules().idle.clone();
        if self.idle.observe(moment, &state, &rules).is_err() || moment < self.not_before {
            return Ok(());
        }
        let round = Round::new();
        // Examining the volume requires a sync: not done without need.
        if !self.habits.is_anything_due(moment, &round) {
            return Ok(());
        }
        let worked = self.work(round, self.dry_run, true);
        match worked {
            Ok((_, wait)) => {
                if self.waits != Some(wait) && wait != Wait::Nothing {
                    tracing::info!("{}: nothing is moved: {wait}", self.mount.display());
                }
                if matches!(wait, Wait::Full(_)) {
                    self.not_before = moment + AFTER_FULL;
                }
                self.waits = Some(wait);
            }
            Err(Ended::Signal) => {}
            Err(Ended::Busy) => {
                tracing::info!("{}: others use the disk again", self.mount.display());
                self.idle = Idle::default();
                self.try_to_keep();
            }
            Err(Ended::Failed(failure)) => {
                tracing::warn!("{failure}; tried again in an hour");
                self.not_before = moment + AFTER_ERROR;
                self.try_to_keep();
            }
        }
        Ok(())
    }

    /// Lays out the policy's proposals.
    fn work(
        &mut self,
        round: Round,
        dry_run: bool,
        gives_way: bool,
    ) -> Result<(Vec<Done>, Wait), Ended> {
        let Self { habits, listener, signals, store, mount, requests, .. } = self;
        let IdleRules { opens: most, battery, .. } = habits.rules().idle;
        let worker = Worker { mount, device: store.device(), config: self.config, dry_run };
        let mut why = None;
        // Restarts the rate, which otherwise covers an earlier time.
        let _ = listener.rate();
        let mut halt = || {
            if let Some(signal) = signals.pending().next() {
                why = Some(Ended::Signal);
                let _ = signal_hook::low_level::raise(signal);
                return Err(Error::interrupted(signal));
            }
            listener.drain()?;
            requests.meanwhile();
            let is_busy = gives_way
                && (listener.rate().is_some_and(|rate| rate > most)
                    || (!battery && pressure::is_on_battery()));
            if is_busy {
                why = Some(Ended::Busy);
                return Err(Error::new(ErrorKind::System, "the machine is busy"));
            }
            Ok(())
        };
        let mut all = Vec::new();
        let mut tell = |done: Done| {
            tracing::info!("{}: {done}", mount.display());
            all.push(done);
        };
        let keep = |habits: &Habits| store.save(habits);
        let worked = worker.run(habits, round, &mut halt, &keep, &mut tell);
        self.is_new = true;
        worked.map(|wait| (all, wait)).map_err(|failure| why.unwrap_or(Ended::Failed(failure)))
    }

    /// Works immediately, on request.
    fn answer(&mut self, asked: PendingRequest) {
        if asked.question["what"] == "save" {
            self.try_to_keep();
            return asked.answer(&json!({}));
        }
        if asked.question["what"] != "now" {
            return asked.answer(&json!({ "error": "the daemon does not know this question" }));
        }
        let dry_run = self.dry_run || asked.question["dry_run"] == true;
        // A trial leaves no trace.
        let before = dry_run.then(|| self.habits.clone());
        let worked = self.work(Round::by_hand(), dry_run, false);
        if let Some(before) = before {
            self.habits = before;
        }
        let value = match worked {
            Ok((all, wait)) => json!({
                "done": all.iter().map(Done::json).collect::<Vec<_>>(),
                "then": wait.to_string(),
            }),
            Err(Ended::Failed(failure)) => json!({ "error": failure.to_string() }),
            Err(Ended::Signal | Ended::Busy) => json!({ "error": "the daemon was ended" }),
        };
        self.try_to_keep();
        asked.answer(&value);
    }
}

/// The reason why work has ended early.
enum Ended {
    Signal,
    /// The machine is busy.
    Busy,
    Failed(Error),
}
