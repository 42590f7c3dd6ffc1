# The workers of a class. Sandboxed jobs see what is in /usr here: Python, a compiler, and the packages of worker.txt. After a change,
# build the image `hostler` first if that is missing, then:
#
#     docker build --file packaging/classroom/worker.Dockerfile --tag hostler-worker .
FROM hostler
RUN apt-get update && apt-get install --yes --no-install-recommends g++ libpfm4 make python3-pip && rm -rf /var/lib/apt/lists/*
COPY packaging/classroom/worker.txt /tmp/worker.txt
RUN python3 -m pip install --break-system-packages --no-cache-dir --requirement /tmp/worker.txt
