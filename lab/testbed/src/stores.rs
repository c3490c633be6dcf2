//! The stores among [`crate::servers`] that people make locks of: the command line of
//! each, for a directory of its own.

use anyhow::ensure;
use std::net::SocketAddr;
use std::path::Path;

/// Where Debian has ZooKeeper and the libraries that it logs with.
const JARS: &str = "/usr/share/java";

/// One etcd, with the settings that it comes with, by this program.
pub(crate) fn etcd(program: &str, address: SocketAddr, directory: &Path) -> String {
    let place = directory.display();
    // Port 0: nobody is to reach it there.
    let peer = "http://127.0.0.1:0";
    format!(
        "{program} --data-dir={place}/data --name=alone --listen-client-urls=http://{address} \
         --advertise-client-urls=http://{address} --listen-peer-urls={peer} \
         --initial-advertise-peer-urls={peer} --initial-cluster=alone={peer}"
    )
}

/// A memcached; the user counts where root starts it.
pub(crate) fn memcached(address: SocketAddr) -> String {
    format!(
        "memcached --user=memcache --listen={} --port={} --udp-port=0",
        address.ip(),
        address.port()
    )
}

/// One ZooKeeper, whose settings are written into its directory.
pub(crate) fn zookeeper(address: SocketAddr, directory: &Path) -> anyhow::Result<String> {
    ensure!(
        Path::new(JARS).join("zookeeper.jar").exists(),
        "ZooKeeper is not installed: `apt install zookeeper` (Debian)"
    );
    let place = directory.display();
    let settings = format!(
        "tickTime=2000\ndataDir={place}\nclientPortAddress={}\nclientPort={}\n\
         maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\n",
        address.ip(),
        address.port()
    );
    std::fs::write(directory.join("zoo.cfg"), settings)?;
    std::fs::write(directory.join("log4j.properties"), "log4j.rootLogger=OFF\n")?;
    let jars = ["zookeeper", "slf4j-api", "slf4j-log4j12", "log4j-1.2"];
    let jars = jars.map(|jar| format!("{JARS}/{jar}.jar")).join(":");
    Ok(format!(
        // Performance data would be a file in /tmp, which stays.
        "java -XX:-UsePerfData -cp {place}:{jars} \
         org.apache.zookeeper.server.quorum.QuorumPeerMain {place}/zoo.cfg"
    ))
}
