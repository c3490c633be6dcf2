# threads.rb load PORT CONNECTIONS SECONDS: a thread for each connection, which sends one request
# after the other. threads.rb serve PORT US: a thread for each connection, which uses so much CPU
# time for each request. All threads of Ruby need one lock.
require 'socket'

HOST = ENV.fetch('CASE_HOST', '127.0.0.1')

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
def used = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)

def load(port, connections, seconds)
  last = now + seconds
  threads = Array.new(connections) do
    Thread.new do
      socket = TCPSocket.new(HOST, port)
      count = 0
      while now < last
        socket.write("GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        socket.readpartial(4096)
        count += 1
      end
      count
    end
  end
  puts "#{threads.sum(&:value)} requests"
end

def serve(port, us)
  server = TCPServer.new(HOST, port)
  server.listen(1024)
  loop do
    Thread.new(server.accept) do |client|
      loop do
        client.readpartial(4096)
        last = used + us / 1e6
        nil while used < last
        client.write("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n")
      end
    rescue EOFError, SystemCallError
      client.close
    end
  end
end

send(ARGV[0], *ARGV[1..].map(&:to_i))
