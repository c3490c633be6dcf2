//! The list of all crates that are linked into the programs: CycloneDX 1.5, from cargo's
//! own answer, with the sums of Cargo.lock. Its serial number is made from its content
//! and its time is the packages': the same commit gives the same list.

use super::{Packing, Target, VERSION, build, sums};
use anyhow::{Context, Result, bail};
use jostle_testbed::shell;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Writes it.
pub(super) fn make(packing: &Packing<'_>, out: &Path) -> Result<()> {
    let tree = tree(packing.target)?;
    let lock = std::fs::read_to_string(shell::root().join("Cargo.lock"))?;
    let components = components(&tree, &checksums(&lock)?)?;
    let serial = serial(&serde_json::to_string(&components)?);
    let list = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": serial,
        "version": 1,
        "metadata": {
            "timestamp": timestamp(packing.epoch)?,
            "component": {
                "type": "application",
                "bom-ref": "jostle",
                "name": "jostle",
                "version": VERSION,
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            },
        },
        "components": components,
    });
    let text = serde_json::to_string_pretty(&list)? + "\n";
    std::fs::write(out.join(file(packing.target)), text).context("cannot write the list of crates")
}

fn file(target: &Target) -> String {
    format!("jostle-{VERSION}-{}.cdx.json", target.triple())
}

/// Fails for a list that breaks CycloneDX's schema, or names no crate.
const VALIDATE: &str = "
import json, sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
text = open(sys.argv[1]).read()
error = JsonStrictValidator(SchemaVersion.V1_5).validate_str(text)
if error is None and not json.loads(text)['components']:
    error = 'no components'
sys.exit(None if error is None else f'{sys.argv[1]}: {error}')
";

/// Has CycloneDX's own library compare the list with its schema.
pub(super) fn validate(target: &Target, out: &Path) -> Result<()> {
    let python = build::environment()?.join("bin/python");
    let mut python = Command::new(python);
    shell::run(python.args(["-c", VALIDATE]).arg(out.join(file(target))))
}

/// A line `name vVERSION [...]|LICENSE` for each crate of the published programs.
fn tree(target: &Target) -> Result<BTreeSet<String>> {
    let words = [
        "tree",
        "--locked",
        "--edges=normal",
        "--prefix=none",
        "--no-dedupe",
        "--format={p}|{l}",
    ];
    let mut cargo = shell::cargo(&words);
    cargo.args(["--target", &target.triple()]);
    let text = shell::output(cargo.args(build::published(target)))?;
    let lines = text.lines().filter(|line| !line.is_empty());
    Ok(lines.map(str::to_owned).collect())
}

/// The sum of each crate that comes from the registry, by `name version`.
fn checksums(lock: &str) -> Result<BTreeMap<String, String>> {
    let lock: toml::Table = lock.parse().context("Cargo.lock")?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let mut sums = BTreeMap::new();
    for package in packages.context("Cargo.lock lists no packages")? {
        let text = |key| package.get(key).and_then(toml::Value::as_str);
        if let (Some(name), Some(version), Some(sum)) =
            (text("name"), text("version"), text("checksum"))
        {
            sums.insert(format!("{name} {version}"), sum.to_owned());
        }
    }
    Ok(sums)
}

fn components(tree: &BTreeSet<String>, sums: &BTreeMap<String, String>) -> Result<Vec<Value>> {
    let mut components = Vec::new();
    for line in tree {
        let (package, license) = line
            .split_once('|')
            .context("cargo tree without a licence")?;
        let mut words = package.split(' ');
        let (Some(name), Some(version)) = (words.next(), words.next()) else {
            bail!("cargo tree printed `{line}`");
        };
        let version = version.trim_start_matches('v');
        let url = format!("pkg:cargo/{name}@{version}");
        let mut component = json!({
            "type": "library",
            "bom-ref": url,
            "name": name,
            "version": version,
            "purl": url,
        });
        if !license.is_empty() {
            // Some crates still separate by a slash, as cargo once allowed.
            let words = license.split('/');
            let expression = words.map(str::trim).collect::<Vec<_>>().join(" OR ");
            component["licenses"] = json!([{ "expression": expression }]);
        }
        if let Some(sum) = sums.get(&format!("{name} {version}")) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        }
        components.push(component);
    }
    Ok(components)
}

/// A number in the form of RFC 9562's version 8 (of one's own making) from a text.
fn serial(text: &str) -> String {
    let sum = sums::sha256(text.as_bytes());
    let variant = "89ab".as_bytes()[usize::from(sum.as_bytes()[16] % 4)] as char;
    format!(
        "urn:uuid:{}-{}-8{}-{variant}{}-{}",
        &sum[..8],
        &sum[8..12],
        &sum[13..16],
        &sum[17..20],
        &sum[20..32]
    )
}

/// Seconds since 1970 as `date` prints them for machines.
pub(super) fn timestamp(epoch: u64) -> Result<String> {
    let mut date = Command::new("date");
    date.args([
        "--utc",
        "--date",
        &format!("@{epoch}"),
        "+%Y-%m-%dT%H:%M:%SZ",
    ]);
    Ok(shell::output(&mut date)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_has_its_address_licence_and_sum() {
        let tree = BTreeSet::from(["libc v0.2.1|MIT / Apache-2.0".to_owned()]);
        let sums = checksums(
            "[[package]]\nname = \"libc\"\nversion = \"0.2.1\"\nchecksum = \"ab\"\n\
             [[package]]\nname = \"own\"\nversion = \"1.0.0\"\n",
        );
        let found = components(&tree, &sums.unwrap()).unwrap();
        assert_eq!(found[0]["purl"], "pkg:cargo/libc@0.2.1");
        assert_eq!(found[0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(found[0]["hashes"][0]["content"], "ab");
    }

    mod live_tests {
        use super::*;
        use crate::dist::TARGETS;

        /// The list had none of the crates that speak TLS, which the programs have.
        #[test]
        fn crates_of_published_features_are_listed() {
            for target in TARGETS {
                let crates = tree(target).unwrap();
                for name in ["rustls v", "h2 v", "mlua v"] {
                    let is_listed = crates.iter().any(|line| line.starts_with(name));
                    assert!(is_listed, "{name} {target:?}");
                }
            }
        }
    }

    #[test]
    fn the_same_content_has_the_same_serial_number_and_another_one_another() {
        assert_eq!(serial("a"), "urn:uuid:ca978112-ca1b-8dca-aac2-31b39a23dc4d");
        assert_ne!(serial("a"), serial("b"));
        assert_eq!(timestamp(0).unwrap(), "1970-01-01T00:00:00Z");
    }
}
