//! The choice among several container images: by name, and by machine.

use super::store::Store;
use oci_spec::image as spec;
use seekless_fs::FsError;
use seekless_fs::term::{Term, Text};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// The machine of a container image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Platform {
    /// `linux` ...
    pub os: String,
    /// `amd64`, `arm64` ... in Go's names.
    pub architecture: String,
    /// `v7` ...; `None` accepts any, but prefers the default variant.
    pub variant: Option<String>,
}

impl Default for Platform {
    /// This machine.
    fn default() -> Self {
        let (architecture, variant) = known_as(std::env::consts::ARCH);
        Self { os: "linux".into(), architecture: architecture.into(), variant }
    }
}

/// Converts another name of an architecture to Go's name and variant (containerd,
/// `platforms/database.go`).
fn known_as(name: &str) -> (&str, Option<String>) {
    match name {
        "x86_64" | "x86-64" => ("amd64", None),
        "aarch64" => ("arm64", None),
        "i386" | "i686" | "x86" => ("386", None),
        "armhf" => ("arm", Some("v7".into())),
        "armel" => ("arm", Some("v6".into())),
        "powerpc64" => ("ppc64le", None),
        other => (other, None),
    }
}

/// The default variant of an architecture.
fn usual_variant(architecture: &str) -> &'static str {
    match architecture {
        "amd64" => "v1",
        "arm" => "v7",
        "arm64" => "v8",
        _ => "",
    }
}

impl FromStr for Platform {
    type Err = String;

    /// Parses `OS/ARCH` or `OS/ARCH/VARIANT`.
    fn from_str(text: &str) -> Result<Self, String> {
        let bad =
            || format!("'{text}' is not OS/ARCH[/VARIANT], such as linux/arm64 or linux/arm/v7");
        let parts: Vec<&str> = text.split('/').collect();
        if parts.iter().any(|part| part.is_empty()) {
            return Err(bad());
        }
        let (os, name, variant) = match parts[..] {
            [os, name] => (os, name, None),
            [os, name, variant] => (os, name, Some(variant.to_string())),
            _ => return Err(bad()),
        };
        let (architecture, implied) = known_as(name);
        Ok(Self { os: os.into(), architecture: architecture.into(), variant: variant.or(implied) })
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { os, architecture, variant } = self;
        write!(f, "{os}/{architecture}")?;
        variant.as_ref().map_or(Ok(()), |variant| write!(f, "/{variant}"))
    }
}

impl From<&spec::Platform> for Platform {
    fn from(found: &spec::Platform) -> Self {
        let (os, architecture) = (found.os().to_string(), found.architecture().to_string());
        Self { os, architecture, variant: found.variant().clone() }
    }
}

impl Platform {
    /// Whether an image for `found` runs on this machine.
    pub(super) fn takes(&self, found: &Self) -> bool {
        let is_same = self.os == found.os && self.architecture == found.architecture;
        is_same && self.variant.as_ref().is_none_or(|variant| variant == found.variant_or_usual())
    }

    /// Whether the variant is the default one.
    pub(super) fn is_usual(&self) -> bool {
        self.variant_or_usual() == usual_variant(&self.architecture)
    }

    fn variant_or_usual(&self) -> &str {
        match self.variant.as_deref() {
            None | Some("") => usual_variant(&self.architecture),
            Some(variant) => variant,
        }
    }
}

/// The choice among several images.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Choice {
    /// The machine; by default this one, if there are several images.
    pub platform: Option<Platform>,
    /// The name, whole (`docker.io/library/debian:12`) or its end from a colon or slash on
    /// (`debian:12`, `12`; `debian` for `debian:latest`). Not needed if there is only one image.
    pub tag: Option<String>,
}

impl Choice {
    /// Whether an image with these names is chosen.
    pub(super) fn takes<'n>(&self, mut names: impl Iterator<Item = &'n str>) -> bool {
        let Some(tag) = &self.tag else { return true };
        // A name without a tag means the latest.
        let wanted = [tag.clone(), format!("{tag}:latest")];
        let is_end = |name: &str, tag: &String| {
            let before = name.strip_suffix(tag.as_str());
            before.is_some_and(|before| before.is_empty() || before.ends_with([':', '/']))
        };
        names.any(|name| wanted.iter().any(|tag| is_end(name, tag)))
    }

    /// The error for a list of images, in the store's part `list`, none of which is chosen.
    pub(super) fn none(&self, store: &Store, list: &str, names: &[String]) -> FsError {
        match &self.tag {
            Some(tag) => store.invalid(format!("no image has the tag {tag}{}", known(names))),
            None => store.invalid(format!("{list}: contains no image")),
        }
    }

    pub(super) fn several(&self, store: &Store, names: &[String]) -> FsError {
        let several = "contains several images; select one with ";
        store.refused(Text::from(several).then(Term::Tag).then(known(names)))
    }

    /// Refuses an image for another machine than the requested one. `found` is taken from its
    /// configuration, which may lack a variant.
    pub(super) fn check_platform(&self, store: &Store, found: &Platform) -> Result<(), FsError> {
        let Some(wanted) = &self.platform else { return Ok(()) };
        let variant = wanted.variant.clone().filter(|_| found.variant.is_some());
        if (Platform { variant, ..wanted.clone() }).takes(found) {
            return Ok(());
        }
        Err(no_image_for(store, wanted, std::slice::from_ref(found)))
    }
}

pub(super) fn no_image_for(store: &Store, wanted: &Platform, found: &[Platform]) -> FsError {
    let found: Vec<String> = found.iter().map(Platform::to_string).collect();
    store.invalid(format!("no image for {wanted}{}", known(&found)))
}

pub(super) fn several_variants(store: &Store, wanted: &Platform, found: &[Platform]) -> FsError {
    let found: Vec<String> = found.iter().map(Platform::to_string).collect();
    let known = known(&found);
    let several = format!("contains several images for {wanted}; select one with ");
    store.refused(Text::from(several).then(Term::Platform).then(known))
}

/// The available names, for a message.
fn known(names: &[String]) -> String {
    let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let names: Vec<&str> = names.into_iter().collect();
    if names.is_empty() { String::new() } else { format!(" (there are: {})", names.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(text: &str) -> Platform {
        text.parse().unwrap()
    }

    #[test]
    fn platforms_are_read_as_others_write_them() {
        for (text, shown) in [
            ("linux/amd64", "linux/amd64"),
            ("linux/x86_64", "linux/amd64"),
            ("linux/aarch64", "linux/arm64"),
            ("linux/armhf", "linux/arm/v7"),
            ("linux/arm/v6", "linux/arm/v6"),
        ] {
            assert_eq!(platform(text).to_string(), shown);
        }
        for text in ["linux", "linux/", "/amd64", "a/b/c/d", "linux/arm/"] {
            assert!(text.parse::<Platform>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_variant_that_is_not_told_is_the_usual_one() {
        assert!(platform("linux/arm64/v8").takes(&platform("linux/arm64")));
        assert!(platform("linux/arm64").takes(&platform("linux/arm64/v9")));
        assert!(!platform("linux/arm64/v9").takes(&platform("linux/arm64")));
        assert!(!platform("linux/arm/v6").takes(&platform("linux/arm/v7")));
        assert!(!platform("linux/arm").takes(&platform("linux/arm64")));
        assert!(platform("linux/arm/v7").is_usual() && platform("linux/arm").is_usual());
        assert!(!platform("linux/arm/v6").is_usual() && platform("linux/riscv64").is_usual());
    }
}
