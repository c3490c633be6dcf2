//! The image for containers: an OCI image layout in a tar file, as `skopeo` and `podman
//! load` read it. One layer has the programs, the C library that `jostle` needs, and the
//! authorities that TLS clients trust; there is no shell in it.

use super::{Packing, VERSION, build, contents, elf, sbom, sums, tarball, temporary};
use anyhow::Context;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The libraries that `jostle` loads, under the name of its loader on each processor.
const LIBRARIES: [&str; 7] = [
    "libc.so.6",
    "libm.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libutil.so.1",
    // Also glibc's own: it ends threads with it.
    "libgcc_s.so.1",
];

const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

pub(super) fn file(packing: &Packing<'_>) -> String {
    format!("jostle-{VERSION}-{}.oci.tar", packing.target.triple())
}

/// Its name inside, with the tag.
pub(super) const TAG: &str = concat!("jostle:", env!("CARGO_PKG_VERSION"));

/// Writes it.
pub(super) fn make(packing: &Packing<'_>, out: &Path) -> anyhow::Result<()> {
    let stage = temporary("image")?;
    let (root, layout) = (stage.path().join("root"), stage.path().join("layout"));
    fill(packing, &root)?;
    let blobs = layout.join("blobs/sha256");
    std::fs::create_dir_all(&blobs)?;
    let (plain, packed) = (
        stage.path().join("layer.tar"),
        stage.path().join("layer.tar.gz"),
    );
    tarball::archive(packing, &root, &["."], &plain)?;
    tarball::archive(packing, &root, &["."], &packed)?;
    let layer = store(
        &blobs,
        &read(&packed)?,
        "application/vnd.oci.image.layer.v1.tar+gzip",
    )?;
    let config = config(packing, &sums::sha256(&read(&plain)?))?;
    let config = store(
        &blobs,
        config.to_string().as_bytes(),
        "application/vnd.oci.image.config.v1+json",
    )?;
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": kind,
        "config": config,
        "layers": [layer],
    });
    let mut entry = store(&blobs, manifest.to_string().as_bytes(), kind)?;
    entry["platform"] = json!({ "os": "linux", "architecture": packing.target.debian });
    entry["annotations"] = json!({ "org.opencontainers.image.ref.name": TAG });
    let index = json!({ "schemaVersion": 2, "manifests": [entry] });
    contents::write(index.to_string(), &layout.join("index.json"), 0o644)?;
    let version = json!({ "imageLayoutVersion": "1.0.0" }).to_string();
    contents::write(&version, &layout.join("oci-layout"), 0o644)?;
    let names = ["blobs", "index.json", "oci-layout"];
    tarball::archive(packing, &layout, &names, &out.join(file(packing)))
}

/// The files of the layer.
fn fill(packing: &Packing<'_>, root: &Path) -> anyhow::Result<()> {
    for name in ["jostle"].iter().chain(&build::STATIC) {
        contents::copy(
            &packing.programs.join(name),
            &root.join("usr/bin").join(name),
            0o755,
        )?;
    }
    let (loader, folder) = match packing.target.arch {
        "aarch64" => ("ld-linux-aarch64.so.1", "lib"),
        _ => ("ld-linux-x86-64.so.2", "lib64"),
    };
    for name in elf::needed(&packing.programs.join("jostle"))? {
        let is_there = name == loader || LIBRARIES.contains(&&*name);
        anyhow::ensure!(is_there, "the image has no {name}, which jostle loads");
    }
    let from = Path::new(packing.target.libraries);
    contents::copy(&from.join(loader), &root.join(folder).join(loader), 0o755)?;
    for name in LIBRARIES {
        contents::copy(&from.join(name), &root.join("usr/lib").join(name), 0o644)?;
    }
    contents::copy(Path::new(AUTHORITIES), &root.join(&AUTHORITIES[1..]), 0o644)?;
    let users = "root:x:0:0:root:/:/sbin/nologin\njostle:x:65532:65532:jostle:/:/sbin/nologin\n";
    contents::write(users, &root.join("etc/passwd"), 0o644)?;
    // Lock files and result files go here; everybody may write.
    let shared = root.join("tmp");
    std::fs::create_dir_all(&shared)?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(&shared, mode)?;
    for license in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let from = jostle_testbed::shell::root().join(license);
        contents::copy(
            &from,
            &root.join("usr/share/doc/jostle").join(license),
            0o644,
        )?;
    }
    Ok(())
}

fn config(packing: &Packing<'_>, layer: &str) -> anyhow::Result<Value> {
    let created = sbom::timestamp(packing.epoch)?;
    Ok(json!({
        "created": created,
        "architecture": packing.target.debian,
        "os": "linux",
        "config": {
            // A number: no name has to be looked up, and it is nobody's on the host.
            "User": "65532:65532",
            "Env": ["PATH=/usr/bin", format!("SSL_CERT_FILE={AUTHORITIES}")],
            "Cmd": ["/usr/bin/jostle"],
            "WorkingDir": "/tmp",
            "Labels": {
                "org.opencontainers.image.title": "jostle",
                "org.opencontainers.image.version": VERSION,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer}")] },
        "history": [{ "created": created, "created_by": "cargo xtask dist" }],
    }))
}

/// Puts a blob under the name of its sum, and gives what points to it.
fn store(blobs: &Path, bytes: &[u8], kind: &str) -> anyhow::Result<Value> {
    let sum = sums::sha256(bytes);
    let file: PathBuf = blobs.join(&sum);
    std::fs::write(&file, bytes).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(json!({
        "mediaType": kind,
        "digest": format!("sha256:{sum}"),
        "size": bytes.len(),
    }))
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}
