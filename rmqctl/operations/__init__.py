"""Operations on stores that only rmqctl has; brokers do not have them."""
