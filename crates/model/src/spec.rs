//! A parameter file: one device, of one kind.

use crate::device::DeviceModel;
use crate::hdd::Hdd;
use crate::hdd::spec::HddSpec;
use crate::lazy::{Lazy, LazySpec};
use crate::null::Null;
use crate::ssd::{Ssd, SsdSpec};
use crate::volume::{Volume, VolumeSpec};
use serde::{Deserialize, Serialize};

/// A parameter file, see docs/models.md.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The preset's or device's name.
    pub name: String,
    /// Description, in a line.
    pub summary: String,
    /// Sources of the figures: datasheets, papers, parameter files.
    #[serde(default)]
    pub sources: Vec<String>,
    /// A device that takes no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub null: Option<NullSpec>,
    /// A network-attached volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeSpec>,
    /// A disk drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hdd: Option<HddSpec>,
    /// A solid-state drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssd: Option<SsdSpec>,
    /// An object store behind a volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lazy: Option<LazySpec>,
}

/// [`Null`] has no figures.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NullSpec {}

/// One kind of device, named like its table.
#[derive(Clone, Copy)]
enum Kind<'a> {
    Null,
    Volume(&'a VolumeSpec),
    Hdd(&'a HddSpec),
    Ssd(&'a SsdSpec),
    Lazy(&'a LazySpec),
}

impl Spec {
    /// A file with a name and a summary, without a device yet.
    pub(crate) fn empty(name: &str, summary: &str) -> Self {
        Self {
            name: name.into(),
            summary: summary.into(),
            sources: Vec::new(),
            null: None,
            volume: None,
            hdd: None,
            ssd: None,
            lazy: None,
        }
    }

    fn kinds(&self) -> impl Iterator<Item = Kind<'_>> {
        [
            self.null.as_ref().map(|_| Kind::Null),
            self.volume.as_ref().map(Kind::Volume),
            self.hdd.as_ref().map(Kind::Hdd),
            self.ssd.as_ref().map(Kind::Ssd),
            self.lazy.as_ref().map(Kind::Lazy),
        ]
        .into_iter()
        .flatten()
    }

    /// The kind of device, as spelled in the parameter file.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.kinds().next() {
            Some(Kind::Volume(_)) => "volume",
            Some(Kind::Hdd(_)) => "hdd",
            Some(Kind::Ssd(_)) => "ssd",
            Some(Kind::Lazy(_)) => "lazy",
            Some(Kind::Null) | None => "null",
        }
    }

    /// The first fault in the figures: key and reason.
    pub(crate) fn fault(&self) -> Option<(&'static str, String)> {
        if self.kinds().count() != 1 {
            let why = "a device must have exactly one of the tables null, volume, hdd, ssd, lazy";
            return Some(("name", why.into()));
        }
        self.kinds().find_map(|kind| match kind {
            Kind::Null => None,
            Kind::Volume(volume) => volume.fault(),
            Kind::Hdd(hdd) => hdd.fault(),
            Kind::Ssd(ssd) => ssd.fault(),
            Kind::Lazy(lazy) => lazy.fault(),
        })
    }

    /// The device at rest: nothing cached, bursts full.
    #[must_use]
    pub fn build(&self) -> Box<dyn DeviceModel> {
        match self.kinds().next() {
            Some(Kind::Volume(volume)) => Box::new(Volume::new(volume.clone())),
            Some(Kind::Hdd(hdd)) => Box::new(Hdd::new(hdd.clone())),
            Some(Kind::Ssd(ssd)) => Box::new(Ssd::new(ssd.clone())),
            Some(Kind::Lazy(lazy)) => Box::new(Lazy::new(lazy.clone())),
            Some(Kind::Null) | None => Box::new(Null::default()),
        }
    }

    /// The parameter file's text.
    ///
    /// # Errors
    /// The TOML writer's error; none is known for sound figures.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}
