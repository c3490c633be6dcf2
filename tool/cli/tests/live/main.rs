//! jostle as its users run it: the program is started, and what it prints, records and
//! leaves behind is looked at. A file for each topic.
//!
//! One test program for all, since each costs seconds to link, and tests that wait can
//! do so beside each other (`common::beside`).

#![allow(clippy::unwrap_used, reason = "every function here is of a test")]

mod churn;
mod common;

mod about;
mod accounts;
mod blocked;
mod broken;
mod calibrate;
mod calls;
mod clusters;
mod conformance;
mod connect;
mod connect_limits;
mod data;
mod drawn;
mod faults;
mod find;
mod gate;
mod growth;
mod histories;
mod hostile;
mod html;
mod http;
mod judge;
mod judge_hosts;
mod judge_namespaces;
mod judge_server;
mod judge_started;
mod ldap;
mod liars;
mod limits;
mod live;
mod lockscale;
mod neighbours;
mod own_lib;
mod own_pipe;
mod own_pipe_libraries;
mod page;
mod procd;
mod ranks;
mod rates;
mod readme;
mod recover;
mod refusals;
mod services;
mod services_etcd;
mod services_failing;
mod services_launched;
mod spread;
mod stream_hold;
mod tasks;
mod terminal;
mod verdicts;
mod verify;
mod who;
mod workflows;
