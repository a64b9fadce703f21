//! `seekless mount --set` and `--counters`: settings and counters of a volume that is mounted.

use super::MountArgs;
use crate::args::Global;
use crate::failure::Failure;
use crate::say::say;
use seekless_host::tuning_request::Adjustment;
use seekless_images::tune_mounted::{adjust, statistics};
use std::process::ExitCode;
use std::str::FromStr;

/// A setting and its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Setting {
    MaxSoftdeps(u64),
    Tickdelay(u64),
    ZeroCounters,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = "max_softdeps=N, tickdelay=N and counters=0";
        let unknown = || format!("unknown setting (available: {known})");
        let (key, value) = text.split_once('=').ok_or_else(unknown)?;
        let number = |most: u64| {
            let number = value.parse::<u64>().ok().filter(|number| (1..=most).contains(number));
            number.ok_or_else(|| format!("{key} is a number from 1 to {most}"))
        };
        match (key, value) {
            ("max_softdeps", _) => number(1 << 32).map(Self::MaxSoftdeps),
            ("tickdelay", _) => number(u32::MAX.into()).map(Self::Tickdelay),
            ("counters", "0") => Ok(Self::ZeroCounters),
            ("counters", _) => Err("counters can only be set to 0".into()),
            _ => Err(unknown()),
        }
    }
}

/// Changes the settings, and prints all of them.
pub(super) fn run(args: &MountArgs, global: &Global) -> Result<ExitCode, Failure> {
    let mut adjustment = Adjustment::default();
    for setting in &args.set {
        match *setting {
            Setting::MaxSoftdeps(most) => adjustment.max_softdeps = Some(most),
            Setting::Tickdelay(ticks) => adjustment.tickdelay = Some(ticks),
            Setting::ZeroCounters => adjustment.zero_counters = true,
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
        let parse = |text: &str| text.parse::<Setting>();
        assert_eq!(parse("max_softdeps=4496"), Ok(Setting::MaxSoftdeps(4496)));
        assert_eq!(parse("tickdelay=20"), Ok(Setting::Tickdelay(20)));
        assert_eq!(parse("counters=0"), Ok(Setting::ZeroCounters));
        for wrong in
            ["max_softdeps", "max_softdeps=0", "tickdelay=-1", "counters=1", "cache=1M", ""]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
