//! `cargo xtask dist --check`: each package is installed where nothing else is, its
//! first command is run, and it is removed again. What is for another processor runs
//! under qemu's emulation, which says that it works and nothing of its speed.

use super::clean_root::Root;
use super::{
    Packing, TARGETS, Target, VERSION, build, deb, image, names, sbom, sums, tarball, temporary,
};
use anyhow::{Context, bail};
use jostle_testbed::shell;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// What `jostle` is asked first: two locks, a second each.
const CONTEND: &str = "contend flock sysv -w 2 -t 1 --runs 1 --no-progress";

/// Checks what is in `out`.
pub(super) fn run(out: &Path, targets: &[&Target]) -> anyhow::Result<()> {
    let start = Instant::now();
    sums::verify(out)?;
    let mut foreign = targets.iter().filter(|target| !is_native(target));
    if targets.iter().any(|target| is_native(target)) {
        native(out)?;
    }
    foreign.try_for_each(|target| timed(target, "under emulation", || emulated(target, out)))?;
    for target in targets {
        timed(target, "image", || of_image(target, out))?;
        timed(target, "list of crates", || sbom::validate(target, out))?;
    }
    println!(
        "all packages were installed, used and removed in {:.0} s",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

fn is_native(target: &Target) -> bool {
    target.arch == std::env::consts::ARCH
}

fn timed<T>(
    target: &Target,
    what: &str,
    check: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let start = Instant::now();
    let done = check().with_context(|| format!("failed: {}: {what}", target.arch))?;
    let took_s = start.elapsed().as_secs_f64();
    println!("{took_s:>6.1} s  {}: {what}", target.arch);
    Ok(done)
}

/// What is done with each package, by a shell in the clean root.
fn scripts(target: &Target) -> [(&'static str, String); 5] {
    let debian = target.debian;
    let folder = format!("jostle-{VERSION}-{}", target.triple());
    [
        (
            "tarball",
            format!(
                "tar -xzf /packages/{folder}.tar.gz -C /usr/local --strip-components=1\n\
                 measures jostle {CONTEND}\ntest -f /usr/local/include/jostle_lock.h\n\
                 jostled --data none & answers\njostle-lock job -- true\n\
                 procd --listen none --spool /tmp & finds jostle-call\n"
            ),
        ),
        (
            "Debian package jostle",
            format!(
                "dpkg -i /packages/jostle_{VERSION}_{debian}.deb\nmeasures jostle {CONTEND}\n\
                 jostle run lockscale --dry-run > /dev/null\n\
                 test -f /usr/share/bash-completion/completions/jostle\n\
                 test -f /usr/share/man/man1/jostle-contend.1\n\
                 dpkg --purge jostle\ntest ! -e /usr/bin/jostle\n"
            ),
        ),
        (
            "Debian package jostled",
            format!(
                "dpkg -i /packages/jostled_{VERSION}_{debian}.deb\n\
                 test -f /usr/lib/systemd/system/jostled.service\n\
                 jostled --config /etc/jostled.toml --data none & server=$!\nanswers\n\
                 jostle-lock job -- true\nkill $server\nwait $server\ndpkg --purge jostled\ntest ! -e /etc/jostled.toml\n"
            ),
        ),
        (
            "Debian package procd",
            format!(
                "dpkg -i /packages/procd_{VERSION}_{debian}.deb\n\
                 procd --config /etc/procd.toml --spool /tmp & server=$!\nfinds jostle-call\n\
                 kill $server\nwait $server\ndpkg --purge procd\ntest ! -e /usr/bin/jostle-call\n"
            ),
        ),
        (
            "wheel",
            format!(
                "python3 -m venv /tmp/v\n\
                 /tmp/v/bin/pip install --no-index /packages/jostle-{VERSION}-*_{}.whl\n\
                 measures /tmp/v/bin/jostle {CONTEND}\n\
                 /tmp/v/bin/jostle run lockscale --dry-run > /dev/null\n/tmp/v/bin/pip uninstall -y jostle\n\
                 test ! -e /tmp/v/bin/jostle\n",
                target.arch
            ),
        ),
    ]
}

/// The packages for this machine, each in a clean root.
fn native(out: &Path) -> anyhow::Result<()> {
    let target = TARGETS.iter().find(|target| is_native(target));
    let target = target.context("no package is for this machine's processor")?;
    let root = timed(target, "the clean root", Root::of_debian)?;
    for (what, script) in scripts(target) {
        timed(target, what, || root.run(out, &script))?;
    }
    let root = timed(target, "the root with Open MPI", Root::with_mpi)?;
    let units = units(target);
    timed(target, "units of systemd", || root.run(out, &units))?;
    let with_mpi = with_mpi(target);
    timed(target, "Debian package jostle-mpi", || {
        root.run(out, &with_mpi)
    })
}

/// systemd finds no fault in a unit: neither by its status nor by a word about the file.
fn units(target: &Target) -> String {
    let debian = target.debian;
    format!(
        "for package in jostled procd; do\n\
             dpkg -i /packages/${{package}}_{VERSION}_{debian}.deb\n\
         done\n\
         cd /usr/lib/systemd/system\n\
         said=$(systemd-analyze verify jostled.service jostled.socket procd.service 2>&1)\n\
         if echo \"$said\" | grep -E '(jostled|procd)[.](service|socket)'; then exit 1; fi\n"
    )
}

/// In the place of an installed `jostle`: two ranks measure a server together.
fn with_mpi(target: &Target) -> String {
    let debian = target.debian;
    format!(
        "dpkg -i /packages/jostle_{VERSION}_{debian}.deb /packages/jostled_{VERSION}_{debian}.deb\n\
         dpkg -i --auto-deconfigure /packages/jostle-mpi_{VERSION}_{debian}.deb\n\
         jostled --data none & server=$!\nanswers\n\
         measures mpirun --allow-run-as-root --oversubscribe -n 2 --mca mpi_yield_when_idle 1 \
         jostle stream lockd://127.0.0.1:2626 -w 2 -n 100 --runs 1 --no-progress\n\
         echo \"$said\" | grep -q '2 hosts'\n\
         kill $server\nwait $server\ndpkg --purge jostle-mpi\ntest ! -e /usr/bin/jostle\n"
    )
}

/// The programs of a tarball for another processor. Nothing is measured: qemu adds a
/// thread of its own to each process, and jostle forks only from one that has one. Nor does qemu know openat2(2), without
/// which procd serves no files: it answers that there is no such procedure.
fn emulated(target: &Target, out: &Path) -> anyhow::Result<()> {
    let folder = format!("jostle-{VERSION}-{}", target.triple());
    let libraries = Path::new(target.libraries)
        .parent()
        .unwrap_or(Path::new("/"));
    let qemu = format!("qemu-{} -L {}", target.arch, libraries.display());
    let script = format!(
        "tar -xzf packages/{folder}.tar.gz -C tmp --strip-components=1\n\
         {qemu} tmp/bin/jostle --version\n\
         {qemu} tmp/bin/jostle run lockscale --dry-run\n\
         {qemu} tmp/bin/jostled --data none & answers\n\
         {qemu} tmp/bin/procd --listen none & refuses '{qemu} tmp/bin/jostle-call'\n"
    );
    // qemu and the other processor's libraries are this machine's: only what the
    // programs write stays apart.
    let place = temporary("empty")?;
    Root::at(place.path()).run_beside(out, &script)?;
    for package in deb::PACKAGES {
        let file = out.join(format!("{}_{VERSION}_{}.deb", package.name, target.debian));
        let mut dpkg = Command::new("dpkg-deb");
        let arch = shell::output(dpkg.arg("--field").arg(&file).arg("Architecture"))?;
        if arch.trim() != target.debian {
            bail!("{} is for {}", file.display(), arch.trim());
        }
    }
    Ok(())
}

/// The image, as the tools of containers see it, and its programs in namespaces.
fn of_image(target: &Target, out: &Path) -> anyhow::Result<()> {
    let file = out.join(format!("jostle-{VERSION}-{}.oci.tar", target.triple()));
    let place = temporary("bundle")?;
    let (layout, bundle) = (place.path().join("layout"), place.path().join("bundle"));
    let from = format!("oci-archive:{}:{}", file.display(), image::TAG);
    let mut skopeo = Command::new("skopeo");
    let said = shell::output(skopeo.args(["--override-arch", target.debian, "inspect", &from]))?;
    let said: serde_json::Value = serde_json::from_str(&said)?;
    if said["Architecture"] != target.debian || said["Os"] != "linux" {
        bail!("skopeo finds {} on {}", said["Architecture"], said["Os"]);
    }
    // It compares every digest on the way.
    let to = format!("oci:{}:{VERSION}", layout.display());
    let mut skopeo = Command::new("skopeo");
    skopeo.args(["--insecure-policy", "--override-arch", target.debian]);
    shell::output(skopeo.args(["copy", "--quiet", &from, &to]))?;
    let mut umoci = Command::new("umoci");
    umoci.args([
        "unpack",
        "--image",
        &format!("{}:{VERSION}", layout.display()),
    ]);
    shell::output(umoci.arg(&bundle))?;
    let root = Root::at(&bundle.join("rootfs"));
    if !is_native(target) {
        // Emulated above; here its loader and libraries have to fit together.
        let qemu = format!("qemu-{} -L $PWD", target.arch);
        return root.run_beside(out, &format!("{qemu} usr/bin/jostle {CONTEND} --dry-run\n"));
    }
    let inside = "chroot --userspec=65532:65532 . /usr/bin";
    let script = format!(
        "test -s etc/ssl/certs/ca-certificates.crt\n\
         measures {inside}/jostle {CONTEND}\n\
         {inside}/jostled --data none & answers\n{inside}/jostle-lock job -- /usr/bin/jostle --version\n\
         measures {inside}/jostle stream lockd://127.0.0.1:2626 -n 100 --runs 1 --no-progress\n"
    );
    root.run_beside(out, &script)
}

/// `cargo xtask ci`: what can be seen without installing anything.
pub(super) fn unpacked(packing: &Packing<'_>, out: &Path, place: &Path) -> anyhow::Result<()> {
    let version = format!("jostle {VERSION}");
    let root = place.join("unpacked");
    for package in deb::PACKAGES {
        let file = out.join(deb::file(package, packing));
        shell::run(Command::new("dpkg-deb").arg("-x").arg(&file).arg(&root))?;
    }
    let said = shell::output(Command::new(root.join("usr/bin/jostle")).arg("--version"))?;
    anyhow::ensure!(
        said.starts_with(&version),
        "the Debian package's jostle says {said}"
    );
    // An installed plan is found from any folder.
    let mut plan = Command::new(root.join("usr/bin/jostle"));
    plan.args(["run", "lockscale", "--dry-run"]);
    let said = shell::output(plan.current_dir(&root))?;
    anyhow::ensure!(said.contains("[[experiment]]"), "the plan is {said}");
    for program in build::STATIC {
        let said =
            shell::output(Command::new(root.join("usr/bin").join(program)).arg("--version"))?;
        anyhow::ensure!(
            said.contains(VERSION),
            "the Debian package's {program} says {said}"
        );
    }
    let name = tarball::name(packing);
    let archive = out.join(format!("{name}.tar.gz"));
    let listed = shell::output(Command::new("tar").arg("-tzf").arg(&archive))?;
    let inside = [
        "bin/jostle",
        "bin/jostled",
        "bin/jostle-lock",
        "include/jostle_lock.h",
        "share/man/man1/jostle-contend.1",
        "share/bash-completion/completions/jostle",
        "lib/systemd/system/jostled.service",
        "share/doc/jostle/LICENSE-MIT",
    ];
    for file in inside {
        let path = format!("{name}/{file}");
        anyhow::ensure!(
            listed.lines().any(|line| line == path),
            "the tarball has no {file}"
        );
    }
    let mut wheels = names(out)?
        .into_iter()
        .filter(|name| name.ends_with(".whl"));
    let wheel = wheels.next().context("there is no wheel")?;
    let environment = place.join("wheel");
    let mut unpack = Command::new(super::wheel::PYTHON);
    // It compares each file with its sum in RECORD.
    unpack.args(["-m", "wheel", "unpack", "--dest"]);
    shell::output(unpack.arg(&environment).arg(out.join(wheel)))?;
    let folder = environment.join(format!("jostle-{VERSION}/jostle-{VERSION}.data"));
    let bytes = |path: &Path| std::fs::read(path).with_context(|| format!("no {}", path.display()));
    let same = bytes(&folder.join("scripts/jostle"))? == bytes(&root.join("usr/bin/jostle"))?;
    anyhow::ensure!(same, "wheel and Debian package have different programs");
    Ok(())
}
