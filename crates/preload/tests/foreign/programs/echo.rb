# Echo server and client with a thread for each connection.
require 'digest'
require 'socket'

role, host, port, file, bytes, connections = ARGV

def serve(host, port)
  listener = TCPServer.new(host, port.to_i)
  trap('TERM') { exit }
  loop do
    Thread.new(listener.accept) do |socket|
      loop { socket.write(socket.readpartial(65_536)) }
    rescue SystemCallError, IOError
      socket.close
    end
  end
end

def client(host, port, pattern, length)
  socket = TCPSocket.new(host, port)
  sha = Digest::SHA256.new
  sent = received = 0
  chunk = ->(limit) { pattern.byteslice(sent % pattern.bytesize, [limit, length - sent].min) }
  20.times do |round|
    part = chunk.call(round * 37 + 1)
    socket.write(part)
    sha << socket.read(part.bytesize)
    sent += part.bytesize
    received += part.bytesize
  end
  writer = Thread.new do
    while sent < length
      part = chunk.call(sent * 7919 % 65_536 + 1)
      sent += part.bytesize
      socket.write(part)
    end
    socket.close_write
  end
  while (part = socket.read(20_000))
    sha << part
    received += part.bytesize
  end
  writer.join
  socket.close
  "#{received} #{sha.hexdigest}"
end

serve(host, port) if role == 'server'
pattern = File.binread(file)
threads = Array.new(connections.to_i) do
  Thread.new { client(host, port, pattern, bytes.to_i) }
end
threads.each_with_index { |thread, at| puts "#{at} #{thread.value}" }
