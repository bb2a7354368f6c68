"""Real data, one file a data set; each file has a loader of its own name.

    from penstock.data.fashion_mnist import fashion_mnist
    from penstock.data.wrist import wrist

Nothing here downloads. A loader reads what an ordinary package client has installed, or the folder it is
given, checks it, and says which package to install where it finds nothing. In every data set label 0 is the
background and the positives count from 1.
"""
