#!/bin/sh
# mpirun on h1, one rank to a host: mpirun -n N PROGRAM...
# Connections that are cut are noticed after about 10 s. Two cores stand for all
# hosts, so that ranks must not be bound to them, and not spin while they wait.
exec DIRECTORY/exec h1 mpirun --allow-run-as-root --hostfile DIRECTORY/hostfile \
    --bind-to none --mca plm_rsh_args "-F DIRECTORY/ssh_config" \
    --mca oob_tcp_if_include eth0 --mca oob_tcp_keepalive_time 4 \
    --mca oob_tcp_keepalive_intvl 2 --mca oob_tcp_keepalive_probes 3 \
    --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include eth0 \
    --mca mpi_yield_when_idle 1 "$@"
