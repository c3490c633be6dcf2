//! Whether an MPI launcher has started this process, from the environment alone, so
//! that a build without MPI can tell too.

/// A job, and this process's place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launched {
    /// Its number; 0 reads the arguments, prints and writes.
    pub rank: usize,
    /// How many there are.
    pub size: usize,
}

/// Pairs of variables for rank and size: of Open MPI, of MPICH and Intel MPI (PMI,
/// which Slurm uses too), of Slurm's PMIx.
const VARIABLES: [[&str; 2]; 4] = [
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
    ["PMI_RANK", "PMI_SIZE"],
    ["PMIX_RANK", "SLURM_STEP_NUM_TASKS"],
    ["PMIX_RANK", "SLURM_NTASKS"],
];

/// The job that a launcher has put this process into. A batch script of Slurm's has
/// a number of tasks without being one of them; only with a rank does it count.
pub fn launched() -> Option<Launched> {
    from(|name| std::env::var(name).ok())
}

fn from(variable: impl Fn(&str) -> Option<String>) -> Option<Launched> {
    let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
    VARIABLES.iter().find_map(|[rank, size]| {
        let (rank, size) = (number(rank)?, number(size)?);
        (rank < size).then_some(Launched { rank, size })
    })
}

impl Launched {
    /// Why a jostle that is not linked with MPI does nothing in such a job, if so.
    pub fn refusal(self) -> Option<String> {
        (self.size > 1).then(|| {
            format!(
                "a launcher has started {} ranks, and this jostle was built without MPI, so \
                 that each would measure by itself: install the package jostle-mpi, or build \
                 `cargo build --release -p jostle-mpi` (Debian: libopenmpi-dev, openmpi-bin, \
                 libclang-dev) and launch `jostle-mpi`, or start this one without the launcher",
                self.size
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The variables set, and rank and size by them.
    type Case = (
        &'static [(&'static str, &'static str)],
        Option<(usize, usize)>,
    );

    #[test]
    fn launchers_are_known_by_what_they_set() {
        let table: &[Case] = &[
            (&[], None),
            (
                &[("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "3")],
                Some((2, 3)),
            ),
            (&[("PMI_RANK", "0"), ("PMI_SIZE", "18")], Some((0, 18))),
            (&[("PMIX_RANK", "1"), ("SLURM_NTASKS", "4")], Some((1, 4))),
            // The step is what srun started; the job may be larger.
            (
                &[
                    ("PMIX_RANK", "1"),
                    ("SLURM_NTASKS", "8"),
                    ("SLURM_STEP_NUM_TASKS", "2"),
                ],
                Some((1, 2)),
            ),
            // A batch script, started by no launcher.
            (&[("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0")], None),
            (
                &[("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "3")],
                None,
            ),
            (
                &[("OMPI_COMM_WORLD_RANK", "x"), ("OMPI_COMM_WORLD_SIZE", "3")],
                None,
            ),
        ];
        for (set, expected) in table {
            let found = from(|name| {
                let mut set = set.iter();
                set.find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned())
            });
            let found = found.map(|launched| (launched.rank, launched.size));
            assert_eq!(found, *expected, "{set:?}");
        }
    }
}
