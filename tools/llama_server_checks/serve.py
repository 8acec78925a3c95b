# SPDX-License-Identifier: Apache-2.0
"""Runs llama.cpp's server of the package xllamacpp: `serve.py PORT MODEL '{"n_ctx": ...}'`."""

import json
import signal
import sys

import xllamacpp

DEBUG = 5  # the level that names every token of a batch

port, model, members = sys.argv[1:]
params = xllamacpp.CommonParams()
params.model.path = model
params.hostnames = ["127.0.0.1"]
params.port = int(port)
params.verbosity = DEBUG
params.fit_params = False
params.warmup = False
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
for name, value in json.loads(members).items():
    getattr(params, name)  # a misspelled one ends the program
    setattr(params, name, value)
server = xllamacpp.Server(params)
signal.pause()
