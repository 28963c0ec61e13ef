"""Operations on a store that rmqctl has and brokers do not have."""
