"""Web servers and proxies, with curl and load generators."""

import signal

from lab.case import Program
from lab.packages import Apt, Pip, Rust
from lab.web import (
    NGINX, WRK, ab, backend, curl, keep, nginx, nginx_conf, prepare_backend, prepare_nginx, web,
    web_files, wrk,
)

AB = Apt("ab", "apache2-utils")


def prepare_lighttpd(place):
    web_files(place)
    place.write("lighttpd.conf", f"""
server.document-root = "{place.folder}/www"
server.bind = "{place.host}"
server.port = {place.port}
server.max-keep-alive-requests = 100000
""")


def prepare_apache(mpm):
    def prepare(place):
        web_files(place)
        modules = "/usr/lib/apache2/modules"
        place.write("apache.conf", f"""
ServerRoot {place.folder}
ServerName {place.host}
Listen {place.host}:{place.port}
PidFile {place.folder}/apache.pid
ErrorLog /dev/stderr
User www-data
Group www-data
LoadModule mpm_{mpm}_module {modules}/mod_mpm_{mpm}.so
LoadModule authz_core_module {modules}/mod_authz_core.so
DocumentRoot {place.folder}/www
Mutex default:{place.folder}
EnableSendfile On
EnableMMAP Off
KeepAlive On
MaxKeepAliveRequests 0
""")
    return prepare


def apache(mpm, **more):
    def servers(place):
        return [Program(["apache2", "-DFOREGROUND", "-f", place.folder / "apache.conf"])]
    return web(f"apache-{mpm}", servers, [Apt("apache2", "apache2"), WRK, AB],
               prepare=prepare_apache(mpm), load=[wrk, ab] if mpm == "event" else [wrk],
               reload=(signal.SIGUSR1, lambda place: keep(place, 3)), **more)


def prepare_haproxy(place):
    prepare_backend(place)
    place.write("haproxy.cfg", f"""
global
  nbthread 2
defaults
  timeout connect 10s
  timeout client 60s
  timeout server 60s
  option splice-request
  option splice-response
  option splice-auto
frontend web
  mode http
  bind {place.host}:{place.port}
  default_backend files
backend files
  mode http
  http-reuse always
  server one {place.host}:{place.named_port("backend")}
listen streams
  mode tcp
  bind {place.host}:{place.named_port("streams")}
  server one {place.host}:{place.named_port("backend")}
""")


def prepare_puma(place):
    web_files(place)
    place.write("config.ru", f"""
run(lambda do |environment|
  name = '{place.folder}/www' + environment['PATH_INFO']
  next [404, {{}}, []] unless File.file?(name)
  [200, {{ 'content-type' => 'text/plain' }}, [File.binread(name)]]
end)
""")


def puma(place):
    return Program(["puma", "-b", f"tcp://{place.host}:{place.port}", "-t", "2:4", "-w", "2",
                    "-e", "production", "-q", place.folder / "config.ru"])


def prepare_fpm(place):
    web_files(place)
    fpm = f"{place.host}:{place.named_port('fpm')}"
    place.write("fpm.php", f"""<?php
$name = '{place.folder}/www' . parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
if (!is_file($name)) {{ http_response_code(404); exit; }}
header('Content-Length: ' . filesize($name));
readfile($name);
""")
    place.write("fpm.conf", f"""
[global]
daemonize = no
error_log = /dev/stderr
[www]
user = www-data
listen = {fpm}
pm = static
pm.max_children = 3
""")
    nginx_conf(place, "nginx", place.port, f"""
    location / {{
      fastcgi_pass fpm;
      fastcgi_keep_conn on;
      fastcgi_param SCRIPT_FILENAME {place.folder}/fpm.php;
      fastcgi_param REQUEST_URI $request_uri;
      fastcgi_param REQUEST_METHOD $request_method;
    }}
  }}
  upstream fpm {{ server {fpm}; keepalive 4;
""")


def fpm(place):
    fpm_program = Program(["php-fpm8.2", "-n", "-F", "-R", "-y", place.folder / "fpm.conf"],
                          port=place.named_port("fpm"))
    return [fpm_program, nginx(place)]


def prepare_java(place):
    web_files(place)
    place.shell("javac", "-d", place.folder / "classes", place.source("java/HttpFiles.java"))


def java_http(place):
    return [Program(["java", "-Xmx256m", "-cp", place.folder / "classes", "HttpFiles", place.host,
                     place.port, place.folder / "www"])]


def prepare_wsgi(place):
    web_files(place)
    place.write("wsgi.py", f"""
import os
def application(environment, start):
    name = '{place.folder}/www' + environment['PATH_INFO']
    if not os.path.isfile(name):
        start('404 Not Found', [('Content-Length', '0')])
        return []
    start('200 OK', [('Content-Length', str(os.path.getsize(name)))])
    return environment['wsgi.file_wrapper'](open(name, 'rb'))
""")


def gunicorn(place):
    return [Program([place.work / "venv/bin/python3", "-m", "gunicorn", "--chdir", place.folder,
                     "-b", f"{place.host}:{place.port}", "-w", "2", "-k", "gthread",
                     "--threads", "4", "--keep-alive", "30", "wsgi:application"])]


def rust(name):
    return web(f"rust-{name}", lambda place: [
        Program([place.work / "rust/release" / name, place.host, place.port,
                 place.folder / "www"])], [Rust(name), WRK])


def node(name, workers):
    return web(name, lambda place: [Program(["node", place.source("http.js"), place.host,
                                             place.port, place.folder / "www", workers])],
               [Apt("node", "nodejs"), WRK])


def hup(place):
    return keep(place, 3)


CASES = [
    web("nginx", lambda place: [nginx(place)], [NGINX, WRK], prepare=prepare_nginx,
        load=[wrk, lambda place: wrk(place, "large")], reload=(signal.SIGHUP, hup), short=True),
    web("lighttpd",
        lambda place: [Program(["lighttpd", "-D", "-f", place.folder / "lighttpd.conf"])],
        [Apt("lighttpd", "lighttpd"), WRK], prepare=prepare_lighttpd,
        reload=(signal.SIGUSR1, hup), short=True),
    apache("event", short=True),
    apache("prefork"),
    web("haproxy", lambda place: [
        backend(place),
        Program(["haproxy", "-W", "-db", "-f", place.folder / "haproxy.cfg"])],
        [Apt("haproxy", "haproxy"), NGINX, WRK], prepare=prepare_haproxy,
        load=[lambda place: curl(place, place.named_port("streams")),
              lambda place: wrk(place, "large")],
        reload=(signal.SIGUSR2, hup), short=True),
    web("puma", lambda place: [puma(place)],
        [Apt("puma", "puma"), AB], prepare=prepare_puma, load=[ab],
        reload=(signal.SIGUSR1, hup)),
    # Without a reload: nginx itself then ends some responses that php-fpm has begun, also without the library.
    web("php-fpm", fpm, [Apt("php-fpm8.2", "php-fpm"), NGINX, WRK], prepare=prepare_fpm),
    web("gunicorn", gunicorn, [Pip("gunicorn", "gunicorn"), WRK], prepare=prepare_wsgi,
        reload=(signal.SIGHUP, hup)),
    node("node-http", 0),
    node("node-cluster", 2),
    web("java-httpserver", java_http, [Apt("javac", "openjdk-17-jdk-headless"), WRK],
        prepare=prepare_java),
    rust("axum-server"),
    rust("hyper-server"),
]
