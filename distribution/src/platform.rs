//! Platforms of images, and which of those on offer fits this machine best.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Descriptor;

/// A platform in the words of the OCI image index (Go's `GOOS` and `GOARCH`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// Operating system, such as `linux`.
    pub os: String,
    /// Processor architecture, such as `amd64`.
    pub architecture: String,
    /// Level of the architecture, such as `v8` for `arm64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Platform {
    /// The platform that this program runs on, with the highest variant that its processor has.
    pub fn host() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            "powerpc64" => "ppc64le",
            other => other,
        };
        let os = match std::env::consts::OS {
            "macos" => "darwin",
            other => other,
        };
        Self { os: os.into(), architecture: architecture.into(), variant: host_variant().map(Into::into) }
    }

    /// How well something made for `self` runs on `host`: higher is better, `None` is not at all.
    fn fit(&self, host: &Self) -> Option<u32> {
        if self.os != host.os || self.architecture != host.architecture {
            return None;
        }
        let (own, most) = (self.level()?, host.level()?);
        (own <= most).then_some(own)
    }

    /// The number in the variant; without one the least that the architecture has.
    fn level(&self) -> Option<u32> {
        match (&self.variant, self.architecture.as_str()) {
            (Some(variant), _) => variant.strip_prefix('v')?.parse().ok(),
            (None, "arm64") => Some(8),
            (None, "arm") => Some(7),
            (None, _) => Some(1),
        }
    }
}

/// Picks the entry of an index that suits `host` best; an index of one entry without a platform means that entry.
///
/// # Errors
/// The platforms on offer, in words.
pub(crate) fn choose<'a>(entries: &'a [Descriptor], host: &Platform) -> Result<&'a Descriptor, Vec<String>> {
    if let [only] = entries
        && only.platform.is_none()
    {
        return Ok(only);
    }
    let fits = entries.iter().filter_map(|entry| Some((entry.platform.as_ref()?.fit(host)?, entry)));
    // The first of equals wins, as in other tools.
    fits.rev().max_by_key(|(fit, _)| *fit).map(|(_, entry)| entry).ok_or_else(|| {
        let known = entries.iter().filter_map(|entry| entry.platform.as_ref());
        known.filter(|platform| platform.os != "unknown").map(ToString::to_string).collect()
    })
}

#[cfg(target_arch = "x86_64")]
fn host_variant() -> Option<&'static str> {
    use std::is_x86_feature_detected as has;
    let v2 = has!("cmpxchg16b") && has!("popcnt") && has!("sse3") && has!("sse4.1") && has!("sse4.2") && has!("ssse3");
    let v3 =
        has!("avx2") && has!("bmi1") && has!("bmi2") && has!("f16c") && has!("fma") && has!("lzcnt") && has!("movbe");
    match (v2, v3) {
        (true, true) => Some("v3"),
        (true, false) => Some("v2"),
        _ => None,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn host_variant() -> Option<&'static str> {
    None
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.iter().try_for_each(|variant| write!(f, "/{variant}"))
    }
}

impl FromStr for Platform {
    type Err = String;

    /// Reads `OS/ARCH[/VARIANT]`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let word = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric());
        match parts[..] {
            _ if !parts.iter().all(word) => Err(format!("platform {text:?}: not of the form os/arch")),
            [os, architecture] => Ok(Self { os: os.into(), architecture: architecture.into(), variant: None }),
            [os, architecture, variant] => {
                Ok(Self { os: os.into(), architecture: architecture.into(), variant: Some(variant.into()) })
            }
            _ => Err(format!("platform {text:?}: not of the form os/arch")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Digest, media_type};

    fn entry(platform: &str) -> Descriptor {
        let mut entry = Descriptor::new(media_type::OCI_MANIFEST, Digest::of(platform), 1);
        entry.platform = platform.parse().ok();
        entry
    }

    fn pick(offer: &[&str], host: &str) -> Result<String, Vec<String>> {
        let entries: Vec<_> = offer.iter().map(|text| entry(text)).collect();
        choose(&entries, &host.parse().unwrap()).map(|d| d.platform.as_ref().map_or("none".into(), ToString::to_string))
    }

    #[test]
    fn best_variant() {
        let table = [
            (&["linux/arm64", "linux/amd64"][..], "linux/amd64/v3", "linux/amd64"),
            (&["linux/amd64", "linux/amd64/v3", "linux/amd64/v2"], "linux/amd64/v3", "linux/amd64/v3"),
            (&["linux/amd64", "linux/amd64/v3", "linux/amd64/v2"], "linux/amd64/v2", "linux/amd64/v2"),
            (&["linux/amd64/v4", "linux/amd64"], "linux/amd64/v3", "linux/amd64"),
            (&["linux/arm/v5", "linux/arm/v7", "linux/arm/v6"], "linux/arm/v6", "linux/arm/v6"),
            (&["linux/arm64/v8"], "linux/arm64", "linux/arm64/v8"),
            (&["unknown/unknown", "linux/amd64"], "linux/amd64", "linux/amd64"),
            (&["-"], "linux/amd64", "none"),
        ];
        for (offer, host, want) in table {
            assert_eq!(pick(offer, host).as_deref(), Ok(want), "{offer:?} on {host}");
        }
    }

    #[test]
    fn missing_platform_lists_the_others() {
        let offer = ["linux/arm64/v8", "windows/amd64", "unknown/unknown", "linux/amd64/v9"];
        assert_eq!(pick(&offer, "linux/amd64").unwrap_err(), ["linux/arm64/v8", "windows/amd64", "linux/amd64/v9"]);
    }

    #[test]
    fn text() {
        for bad in ["", "linux", "linux/", "a/b/c/d", "linux/am d64", "../etc"] {
            assert!(bad.parse::<Platform>().is_err(), "{bad}");
        }
        assert_eq!("linux/arm/v7".parse::<Platform>().unwrap().to_string(), "linux/arm/v7");
    }
}
