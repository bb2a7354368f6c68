"""Real data, one file a data set; each file has a loader of its own name.

    from reproduction.datasets.fashion_mnist import fashion_mnist
    from reproduction.datasets.cifar10 import cifar10
    from penstock.datasets.speech_commands import speech_commands
    from penstock.datasets.sound_folder import sound_folder  # any folder of your own; image_folder for pictures

A loader never downloads: it reads the folder it is given, the cache, or what a package has installed, checks it, and
says how to get it where it finds nothing (`penstock data fetch NAME`). In every data set label 0 is the background and
the positives count from 1.
"""
