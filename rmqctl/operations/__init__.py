"""Operations of rmqctl that change or serve stores; RocketMQ brokers lack them."""
