//! Options that only one format has.

use crate::failure::Failure;
use clap::error::Error;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Id};
use std::ops::Deref;

/// Owners of options, as errors name them.
pub(crate) const EXT_IMAGES: &str = "ext images (--format ext2, ext3 or ext4)";
pub(crate) const UFS_IMAGES: &str = "UFS images (--format ufs1 or ufs2)";
pub(crate) const FAT_IMAGES: &str = "FAT images (--format fat32)";

/// Options of one format, and the first of them that was given on the command line.
#[derive(Debug, Clone)]
pub(crate) struct FormatArgs<A> {
    args: A,
    given: Option<String>,
}

impl<A> FormatArgs<A> {
    /// Refuses all of the options, for images of another format than `owner`.
    pub(crate) fn refuse(&self, owner: &str) -> Result<(), Failure> {
        match &self.given {
            Some(option) => Err(Failure::usage(format!("{option} is for {owner}"))),
            None => Ok(()),
        }
    }
}

impl<A> Deref for FormatArgs<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.args
    }
}

impl<A: Args> Args for FormatArgs<A> {
    fn group_id() -> Option<Id> {
        A::group_id()
    }

    fn augment_args(command: Command) -> Command {
        A::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        A::augment_args_for_update(command)
    }
}

impl<A: Args> FromArgMatches for FormatArgs<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Self::from_arg_matches_mut(&mut matches.clone())
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, Error> {
        // Values are taken out of the matches below.
        let given = given::<A>(matches);
        Ok(Self { args: A::from_arg_matches_mut(matches)?, given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.update_from_arg_matches_mut(&mut matches.clone())
    }

    fn update_from_arg_matches_mut(&mut self, matches: &mut ArgMatches) -> Result<(), Error> {
        if let Some(option) = given::<A>(matches) {
            self.given.get_or_insert(option);
        }
        self.args.update_from_arg_matches_mut(matches)
    }
}

/// The first of the options that was given on the command line.
fn given<A: Args>(matches: &ArgMatches) -> Option<String> {
    let command = A::augment_args(Command::new("options"));
    let is_given =
        |arg: &&Arg| matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
    command.get_arguments().find(is_given).map(shown)
}

/// An option as it is given.
fn shown(option: &Arg) -> String {
    match (option.get_long(), option.get_short()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => option.get_id().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::FormatArgs;
    use clap::{Args, Parser};

    #[derive(Args, Debug)]
    struct Own {
        #[arg(long, default_value_t = 1)]
        fats: u32,
        #[arg(short = 'E')]
        extended: Vec<String>,
        #[arg(long)]
        flag: bool,
    }

    #[derive(Parser, Debug)]
    struct Program {
        #[command(flatten)]
        own: FormatArgs<Own>,
        #[arg(long)]
        other: bool,
    }

    fn refused(arguments: &[&str]) -> Option<String> {
        let program = Program::parse_from([&["program"], arguments].concat());
        program.own.refuse("FAT").err().map(|failure| failure.to_string())
    }

    #[test]
    fn only_own_options_that_were_given_are_refused() {
        assert_eq!(refused(&[]), None);
        assert_eq!(refused(&["--other"]), None);
        assert_eq!(refused(&["--fats", "1"]).as_deref(), Some("--fats is for FAT"));
        assert_eq!(refused(&["-E", "a", "--other"]).as_deref(), Some("-E is for FAT"));
        assert_eq!(refused(&["--flag"]).as_deref(), Some("--flag is for FAT"));
    }

    #[test]
    fn values_are_those_of_the_options() {
        let program = Program::parse_from(["program", "--fats", "3", "-Ea", "-Eb", "--other"]);
        assert_eq!((program.own.fats, program.own.flag, program.other), (3, false, true));
        assert_eq!(program.own.extended, ["a", "b"]);
    }
}
