//! `seekless mount --set` and `--counters`: settings and counters of a volume that is mounted.

use super::MountArgs;
use crate::args::Global;
use crate::failure::Failure;
use crate::say::say;
use seekless_host::tuning_request::Adjustment;
use seekless_images::tune_mounted::{adjust, statistics};
use seekless_serve::Setting;
use std::process::ExitCode;
use std::str::FromStr;

/// An argument of `--set`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Setting(Setting),
    ZeroCounters,
}

impl FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let names = || Setting::NAMES.into_iter().chain(["counters"]);
        if !names().any(|known| known == name) {
            let names: Vec<_> = names().collect();
            return Err(format!("unknown setting (available: {})", names.join(", ")));
        }
        let value = value.ok_or_else(|| format!("{name} needs a value"))?;
        match (Setting::parse(name, value), value) {
            (Some(setting), _) => setting.map(Self::Setting),
            (None, "0") => Ok(Self::ZeroCounters),
            (None, _) => Err(format!("{name} can only be set to 0")),
        }
    }
}

/// Changes the settings, and prints all of them.
pub(super) fn run(args: &MountArgs, global: &Global) -> Result<ExitCode, Failure> {
    let mut adjustment = Adjustment::default();
    for change in &args.set {
        match *change {
            Change::Setting(setting) => setting.add_to(&mut adjustment),
            Change::ZeroCounters => adjustment.zero_counters = true,
        }
    }
    if !args.set.is_empty() {
        adjust(&args.image, &adjustment)?;
    }
    if args.counters || !global.quiet {
        say!("{}", statistics(&args.image, global.json)?);
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_named_with_their_values() {
        let parse = |text: &str| text.parse::<Change>();
        assert_eq!(parse("max_softdeps=4496"), Ok(Change::Setting(Setting::MaxSoftdeps(4496))));
        assert_eq!(parse("tickdelay=20"), Ok(Change::Setting(Setting::Tickdelay(20))));
        assert_eq!(parse("counters=0"), Ok(Change::ZeroCounters));
        for (wrong, why) in [
            ("max_softdeps", "max_softdeps needs a value"),
            ("max_softdeps=0", "max_softdeps must be a number from 1 to 4294967295"),
            ("tickdelay=-1", "tickdelay must be a number from 2 to 3000"),
            ("counters=1", "counters can only be set to 0"),
            ("cache=1K", "cache must be at least 1024K"),
            ("caches=1M", "available: max_softdeps, tickdelay, max_undo, cache, counters"),
            ("", "unknown setting"),
        ] {
            let message = parse(wrong).unwrap_err();
            assert!(message.contains(why), "{wrong}: {message}");
        }
    }
}
