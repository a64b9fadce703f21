//! Options of a read-write mount, in the form of `-o`.

use crate::settings::Setting;
use fuser::MountOption;
use seekless_cache::{Ages, Config, Discipline};
use seekless_formats::{Argument, FORMATS, Mounting, check_mount};
use seekless_fs::FsError;
use seekless_images::Error;

/// Options of every format; `=` if a value follows.
const COMMON: &[&str] = &[
    "rw",
    "ro",
    "async",
    "sync",
    "normal",
    "softdep",
    "journal=",
    "policy=",
    "seed=",
    "cache=",
    "ages=",
    "max_softdeps=",
    "tickdelay=",
    "max_undo=",
    "barriers",
    "nobarriers",
    "discard",
    "nodiscard",
    "force",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "noatime",
    "allow_other",
];

/// The options of one mount.
#[derive(Clone, Debug)]
pub struct LiveMountOptions {
    /// Whether the image may be changed (`rw`).
    pub writable: bool,
    /// The way in which the image is opened.
    pub how: Mounting,
    /// Whether other users may use the mount.
    pub allow_other: bool,
    /// Options passed to the kernel.
    pub flags: Vec<MountOption>,
    /// Options that are meaningful only for writable mounts.
    only_writable: Vec<String>,
    /// Limits on pending changes, which only soft updates have.
    of_soft_updates: Vec<String>,
}

impl LiveMountOptions {
    /// Parses options separated by commas, in one or more arguments; the last one of opposites
    /// counts.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](seekless_images::ErrorKind::Usage) with the option, and a similar one.
    pub fn parse(arguments: &[String]) -> Result<Self, Error> {
        let mut options = Self {
            writable: false,
            how: Mounting::new(Config::new(Discipline::SoftUpdates)),
            allow_other: false,
            flags: vec![MountOption::NoSuid, MountOption::NoDev],
            only_writable: Vec::new(),
            of_soft_updates: Vec::new(),
        };
        let each = arguments.iter().flat_map(|argument| argument.split(','));
        for option in each.filter(|option| !option.is_empty()) {
            options.take(option)?;
        }
        match options.only_writable.first() {
            Some(option) if !options.writable => {
                Err(Error::usage(format!("-o {option} needs -o rw: the mount is read-only")))
            }
            _ => Ok(options),
        }
    }

    /// Refuses limits of soft updates under another discipline, where they would do nothing.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] with the option.
    pub(crate) fn check_limits(&self, discipline: Discipline) -> Result<(), FsError> {
        match self.of_soft_updates.first() {
            Some(option) if discipline != Discipline::SoftUpdates => {
                Err(FsError::Unsupported(format!("-o {option} under {discipline}")))
            }
            _ => Ok(()),
        }
    }

    fn take(&mut self, option: &str) -> Result<(), Error> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        match (name, value) {
            ("rw", None) => self.writable = true,
            ("ro", None) => self.writable = false,
            ("noatime", None) => {}
            ("allow_other", None) => self.allow_other = true,
            ("suid", None) => self.set_flag(MountOption::Suid, &MountOption::NoSuid),
            ("nosuid", None) => self.set_flag(MountOption::NoSuid, &MountOption::Suid),
            ("dev", None) => self.set_flag(MountOption::Dev, &MountOption::NoDev),
            ("nodev", None) => self.set_flag(MountOption::NoDev, &MountOption::Dev),
            ("exec", None) => self.set_flag(MountOption::Exec, &MountOption::NoExec),
            ("noexec", None) => self.set_flag(MountOption::NoExec, &MountOption::Exec),
            _ => {
                self.only_writable.push(option.to_string());
                return self.take_live(option, name, value);
            }
        }
        Ok(())
    }

    fn take_live(&mut self, option: &str, name: &str, value: Option<&str>) -> Result<(), Error> {
        if let Some(setting) = value.and_then(|value| Setting::parse(name, value)) {
            let wrong = |why| Error::usage(format!("-o {option}: {why}"));
            let setting = setting.map_err(wrong)?;
            setting.apply(&mut self.how.config);
            if setting.is_of_soft_updates() {
                self.of_soft_updates.push(option.to_string());
            }
            return Ok(());
        }
        match (name, value) {
            ("force", None) => self.how.force = true,
            ("barriers", None) => self.how.config.barriers = true,
            ("discard", None) => self.how.discards = Some(true),
            ("nodiscard", None) => self.how.discards = Some(false),
            ("nobarriers", None) => self.how.config.barriers = false,
            ("seed", Some(value)) => self.how.seed = number(option, value)?,
            ("ages", Some("classic")) => self.how.config.ages = Ages::CLASSIC,
            ("ages", Some("freebsd")) => self.how.config.ages = Ages::FREEBSD,
            ("journal", Some(_)) => self.how.discipline = Some(discipline(option)?),
            ("policy", Some(_)) => self.add(option, Argument::new("dirs", value))?,
            _ => self.add(option, Argument::new(name, value))?,
        }
        Ok(())
    }

    /// Takes an option that only some formats have, or a discipline.
    fn add(&mut self, option: &str, argument: Argument) -> Result<(), Error> {
        match check_mount(&argument) {
            Ok(()) => self.how.arguments.push(argument),
            Err(Some(why)) => return Err(Error::usage(format!("-o {option}: {why}"))),
            Err(None) => self.how.discipline = Some(discipline(option)?),
        }
        Ok(())
    }

    fn set_flag(&mut self, flag: MountOption, opposite: &MountOption) {
        self.flags.retain(|other| other != opposite && *other != flag);
        self.flags.push(flag);
    }
}

fn discipline(option: &str) -> Result<Discipline, Error> {
    option.parse().map_err(|_| unknown(option))
}

fn number<T: std::str::FromStr>(option: &str, value: &str) -> Result<T, Error> {
    value.parse().map_err(|_| Error::usage(format!("-o {option}: invalid number")))
}

/// The options of every format and of each; `=` if a value follows.
fn known() -> Vec<String> {
    let mut known: Vec<String> = COMMON.iter().map(|&name| name.into()).collect();
    for parameter in FORMATS.iter().flat_map(|format| format.mount_parameters) {
        let has_value = parameter.to_string().contains('=');
        let name = format!("{}{}", parameter.name, if has_value { "=" } else { "" });
        if !known.contains(&name) {
            known.push(name);
        }
    }
    known
}

/// The error for an unknown option, with a similar one.
fn unknown(option: &str) -> Error {
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    let known = known();
    let distance = |known: &&String| strsim::damerau_levenshtein(name, known.trim_end_matches('='));
    let near = known.iter().min_by_key(distance).filter(|known| distance(known) <= 2);
    let hint = match near {
        Some(known) if known.trim_end_matches('=') == name && known.ends_with('=') => {
            format!(" (expected {known}VALUE with a valid value)")
        }
        Some(known) => format!(" (did you mean {known}?)"),
        None => format!(" (known options: {})", known.join(" ")),
    };
    Error::usage(format!("-o {option}: unknown option{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &str) -> Result<LiveMountOptions, String> {
        LiveMountOptions::parse(&[options.into()]).map_err(|failure| failure.to_string())
    }

    fn arguments(options: &LiveMountOptions) -> Vec<String> {
        options.how.arguments.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn options_as_mount_takes_them() {
        let options = parse("rw,async,policy=depth,cache=1M,nobarriers,dev").unwrap();
        assert!(options.writable);
        assert_eq!(options.how.discipline, Some(Discipline::Async));
        assert_eq!(options.how.config.capacity.get(), 1 << 20);
        assert!(!options.how.config.barriers);
        assert_eq!(arguments(&options), ["dirs=depth"]);
        assert!(options.flags.contains(&MountOption::Dev));
        assert!(!options.flags.contains(&MountOption::NoDev));
        assert!(!parse("rw,ro").unwrap().writable);
        // The last one of two opposites counts; a policy may have a number.
        let options = parse("rw,delalloc,nodelalloc").unwrap();
        assert_eq!(arguments(&options), ["delalloc", "nodelalloc"]);
        assert!(arguments(&parse("rw").unwrap()).is_empty());
        let options = parse("rw,policy=depth,dirs=linear,inodes=dir-reserve=32").unwrap();
        assert_eq!(arguments(&options), ["dirs=depth", "dirs=linear", "inodes=dir-reserve=32"]);
        let limits = parse("rw,max_softdeps=9,tickdelay=3,max_undo=1M").unwrap().how.config.limits;
        assert_eq!((limits.max_softdeps, limits.tickdelay), (9, 3));
        assert_eq!(limits.max_undo.get(), 1 << 20);
        for senseless in [
            "cache=0",
            "cache=1023K",
            "max_softdeps=0",
            "tickdelay=0",
            "tickdelay=1",
            "tickdelay=x",
            "max_undo=0",
        ] {
            let message = parse(&format!("rw,{senseless}")).unwrap_err();
            assert!(message.contains(senseless), "{message}");
        }
    }

    #[test]
    fn unknown_options_are_named_with_what_was_meant() {
        assert!(parse("rw,sofdep").unwrap_err().contains("did you mean softdep?"));
        assert!(parse("rw,polcy=orlov").unwrap_err().contains("policy="));
        assert!(parse("rw,xyzzyx").unwrap_err().contains("known options: rw"));
        assert!(parse("rw,cache=much").unwrap_err().contains("cache=much"));
        assert!(parse("rw,ages=old").unwrap_err().contains("ages"));
        assert!(parse("softdep").unwrap_err().contains("needs -o rw"));
        assert!(parse("delalloc").unwrap_err().contains("needs -o rw"));
        assert!(parse("rw,tz=2000").unwrap_err().contains("-1440 to 1440"));
        assert!(parse("rw,dirmove=none").unwrap_err().contains("any, exdev"));
        assert!(parse("rw,delalloc=1").unwrap_err().contains("no value"));
        assert!(parse("rw,dirs").unwrap_err().contains("dirs=POLICY"));
        assert!(parse("rw,delaloc").unwrap_err().contains("did you mean delalloc?"));
    }
}
