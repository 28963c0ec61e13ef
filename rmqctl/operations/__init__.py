"""Operations that change or serve stores, and that RocketMQ brokers do not have."""
