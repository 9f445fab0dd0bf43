import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.epoll.EpollEventLoopGroup;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.ChannelInputShutdownEvent;
import io.netty.channel.ChannelFutureListener;
import io.netty.buffer.Unpooled;

/** An echo server on the native epoll of Netty. */
public final class NettyEcho extends ChannelInboundHandlerAdapter {
    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("client")) {
            EchoClient.run(arguments);
        }
        new ServerBootstrap()
            .group(new EpollEventLoopGroup(1), new EpollEventLoopGroup(2))
            .channel(EpollServerSocketChannel.class)
            .childOption(ChannelOption.ALLOW_HALF_CLOSURE, true)
            .childHandler(new ChannelInitializer<SocketChannel>() {
                @Override
                protected void initChannel(SocketChannel channel) {
                    channel.pipeline().addLast(new NettyEcho());
                }
            })
            .bind(arguments[1], Integer.parseInt(arguments[2])).sync();
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object part) {
        context.writeAndFlush(part);
    }

    @Override
    public void channelWritabilityChanged(ChannelHandlerContext context) {
        context.channel().config().setAutoRead(context.channel().isWritable());
    }

    @Override
    public void userEventTriggered(ChannelHandlerContext context, Object event) {
        if (event instanceof ChannelInputShutdownEvent) {
            context.writeAndFlush(Unpooled.EMPTY_BUFFER).addListener(ChannelFutureListener.CLOSE);
        }
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable error) {
        context.close();
    }
}
