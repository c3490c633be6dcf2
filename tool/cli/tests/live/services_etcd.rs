//! etcd as jostle launches it, which is the first in `PATH`: by one and by several clients,
//! with the version that served them. The same of a current version.

use crate::common::{beside, in_some_try, jostle, must_have, reason};
use jostle_model::record::Run;
use jostle_testbed::etcd::{current_passes, expected_version};

fn contended() -> Vec<Run> {
    let line = "contend etcd -w 1:4 -b 0 -i 0 -t 2 --runs 1 --format json";
    // A machine may stand still for a whole window.
    in_some_try("grants in each run", || {
        let runs = jostle(line).measures().leaves_nothing().runs();
        runs.iter().all(|run| run.operations > 0).then_some(runs)
    })
}

#[test]
fn etcd_is_contended_for_by_the_recipe_s_round_trips_and_its_version_is_stated() {
    let _beside = beside();
    must_have("etcd", "etcd-server");
    let expected = expected_version().unwrap();
    let points = contended();
    assert!(points.len() >= 2, "{points:?}");
    for run in points {
        for check in ["exclusion", "lost_update", "deaths", "errors"] {
            assert_eq!(reason(&run, check), None, "{run:?}");
        }
        assert!(run.operations > 0, "{run:?}");
        assert_eq!(run.server_version().unwrap(), expected);
        let traffic = run.traffic.unwrap();
        let (round_trips, _) = traffic.for_each_grant().unwrap();
        let most = match run.at.workers {
            // A session is kept alive now and then.
            Some(1) => 2.05,
            // Those that the end of the window cut off have made some of theirs.
            _ => 7.0,
        };
        // Both weigh more where a slow machine grants less.
        let most = most + 16.0 / traffic.grants as f64;
        assert!((2.0..=most).contains(&round_trips), "{run:?}");
    }
}

#[test]
#[ignore = "cargo xtask long"]
fn a_current_etcd_passes_what_is_asked_of_debian_s() {
    current_passes(&[
        "recover::a_lease_of_etcd_is_longer_than_was_asked_for_and_begins_anew_with_the_server",
        "recover::the_next_owner_of_etcd_waits_for_the_lease_of_the_one_that_was_killed",
        "services_etcd::etcd_is_contended_for_by_the_recipe_s_round_trips_and_its_version_is_stated",
        "services_failing::a_disk_too_small_for_a_server_is_named_with_the_way_out",
        "services_failing::etcd_whose_quota_is_used_up_is_told_before_the_first_worker_with_the_way_out",
        "services_launched::a_cluster_of_etcd_is_launched",
        "services_launched::a_fenced_service_gives_each_grant_a_greater_token",
        "services_launched::round_trips_are_those_of_the_recipe",
    ]);
}
