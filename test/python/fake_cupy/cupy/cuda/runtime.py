# SPDX-License-Identifier: Apache-2.0
destroyed = []
device = [0]


def getDevice():
    return device[0]


def deviceSynchronize():
    from . import refuse_in_capture

    refuse_in_capture()


def streamIsCapturing(ptr):
    from . import stream_of

    return stream_of(ptr).is_capturing()


def streamBeginCapture(ptr, mode=2):
    from . import stream_of

    stream_of(ptr).graph = []


def streamEndCapture(ptr):
    from . import new_graph, stream_of

    stream = stream_of(ptr)
    launches, stream.graph = stream.graph, None
    return new_graph(launches)


def graphDestroy(graph):
    destroyed.append(graph)
